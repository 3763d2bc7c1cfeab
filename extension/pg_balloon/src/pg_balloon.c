/*
 * pg_balloon.c
 *		Loading, and the background worker: observes, runs the controller,
 *		applies and logs its decision.
 *
 * The worker observes in each tick without a transaction. It begins one only
 * to apply a decision, because writing dirty pages needs a resource owner, and
 * errors need cleanup. While pg_balloon.enabled is off, it sleeps until the
 * configuration is reloaded.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "storage/smgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "actuator.h"
#include "compat.h"
#include "controller.h"
#include "guc.h"
#include "observe.h"
#include "shared_state.h"

BALLOON_MODULE_MAGIC;

#define LOG_EVERY 1000			/* milliseconds between two log lines of the same decision */

/* Decisions of one kind that are not logged yet, and the time of the last line. */
static BalloonDecision pending;
static int64 pending_buffers = 0;
static TimestampTz logged_at = 0;

/* Log the pending decisions. */
static void
flush_log(const BalloonInput *input)
{
	char		refaults[32] = "unknown";

	if (pending_buffers == 0)
		return;
	if (input != NULL && input->refaults >= 0)
		snprintf(refaults, sizeof(refaults), "%.0f/s", input->refaults);
	ereport(balloon_log_level,
			(errmsg("pg_balloon %s %lld kB: %s",
					pending.action == BALLOON_INFLATE ? "inflated by" : "deflated by",
					(long long) (pending_buffers * (BLCKSZ / 1024)),
					balloon_reason_text(pending.reason)),
			 input == NULL ? 0 :
			 errdetail("Balloon now %lld kB, available %lld kB of %lld kB, working set %.0f %%, "
					   "misses %.0f/s, waiting %.0f, refaults %s.",
					   (long long) balloon->nballooned * (BLCKSZ / 1024),
					   (long long) input->available / 1024, (long long) input->limit / 1024,
					   input->hot * 100, input->misses, input->waiting, refaults)));
	pending_buffers = 0;
	logged_at = GetCurrentTimestamp();
}

/*
 * Log a decision that moved buffers: a new kind at once, the same kind once a
 * second, with the total. The input is NULL without measurements.
 */
static void
log_decision(const BalloonDecision *decision, int64 buffers, const BalloonInput *input)
{
	bool		moved = buffers > 0 &&
		(decision->action == BALLOON_INFLATE || decision->action == BALLOON_DEFLATE);
	bool		changed = moved &&
		(decision->action != pending.action || decision->reason != pending.reason);

	if (changed)
	{
		flush_log(input);
		pending = *decision;
	}
	if (moved)
		pending_buffers += buffers;
	if (changed || TimestampDifferenceExceeds(logged_at, GetCurrentTimestamp(), LOG_EVERY))
		flush_log(input);
}

/* factor by which ticks are more frequent while buffers move */
#define FAST_TICKS 10
#define MIN_WAIT 10				/* milliseconds between ticks at least */
/*
 * Seconds of frequent ticks after buffers have moved, because two servers that
 * trade memory move in turns.
 */
#define FAST_TICKS_FOR 0.5
/*
 * Seconds per inflate or writeback at most. Writing can be slow, and the server
 * may need memory meanwhile.
 */
#define MAX_ACTION_TIME 0.5
/* maximum interval between ticks, as a multiple, while memory cannot become short that soon */
#define MAX_INTERVALS 4
/* Seconds between two rounds that close dropped files and release memory that came back. */
#define MAINTENANCE_EVERY 60.0
#define FLUSH_STATS_EVERY 1.0	/* seconds between two updates of pg_stat_io */

PGDLLEXPORT void pg_balloon_main(Datum argument);

/* State kept from tick to tick. */
static BalloonControllerState controller_state;
static double since_maintenance = 0;
static double since_flushed = 0;
/* chunk from which on to release the balloon's memory again; -1: none */
static int	release_from = -1;
static double since_moved = FAST_TICKS_FOR;	/* seconds since a tick moved buffers */
/* the last tick had nothing to do, and nothing remains to be read back */
static bool steady = false;
static bool was_enabled = false;

static uint32 wait_main;		/* wait event PgBalloonMain; "Extension" before 17 */

/* Return the seconds since *then, and set it to now. */
static double
seconds_since(instr_time *then)
{
	instr_time	now;
	instr_time	passed;

	INSTR_TIME_SET_CURRENT(now);
	passed = now;
	INSTR_TIME_SUBTRACT(passed, *then);
	*then = now;
	return INSTR_TIME_GET_DOUBLE(passed);
}

/*
 * Add written pages to pg_stat_io.
 *
 * Forced, because PostgreSQL would otherwise postpone it to a later call, and
 * compute the delay from the end of the last transaction, which does not
 * change while the worker is idle. It costs nothing without new values.
 */
static void
flush_io_stats(void)
{
	pgstat_report_stat(true);
	since_flushed = 0;
}

/* Apply a decision. Returns how many buffers moved or were written. */
static int64
apply_decision(const BalloonDecision *decision)
{
	int64		done = 0;

	if (decision->action == BALLOON_HOLD)
		return 0;
	/* shown by pg_stat_activity as the transaction's time */
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, NULL);
	if (decision->action == BALLOON_DEFLATE)
	{
		done = balloon_deflate(decision->buffers);
		balloon_observe_deflated(done);
	}
	else if (decision->action == BALLOON_WRITEBACK)
		done = balloon_write(decision->buffers, MAX_ACTION_TIME);
	else
		done = balloon_inflate(decision->buffers, decision->write,
							   decision->reason != BALLOON_REASON_TARGET, MAX_ACTION_TIME);
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);

	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	if (done > 0 && decision->action == BALLOON_INFLATE)
		balloon->counters.inflate_decisions++;
	else if (done > 0 && decision->action == BALLOON_DEFLATE)
		balloon->counters.deflate_decisions++;
	LWLockRelease(balloon->lock);
	return done;
}

/*
 * Move toward pg_balloon.target, at most at the configured rates, and within
 * the controller's limits.
 */
static void
steer_to_target(const BalloonInput *input, BalloonDecision *decision)
{
	int64		target = Min((int64) balloon_target_mb * 1024 * 1024 / BLCKSZ,
							 input->ballooned + balloon_inflatable(input));
	int64		missing = target - input->ballooned;
	int			rate = missing > 0 ? balloon_max_inflate_rate : balloon_max_deflate_rate;

	if (balloon_safety(input, decision))
		return;
	decision->reason = BALLOON_REASON_TARGET;
	if (missing == 0)
		return;
	decision->action = missing > 0 ? BALLOON_INFLATE : BALLOON_DEFLATE;
	decision->write = true;
	decision->prefetch = missing < 0;
	decision->buffers = Min(missing > 0 ? missing : -missing,
							Max(1, (int64) (rate * Min(input->dt, 1.0) * 1024 * 1024 / BLCKSZ)));
}

/* Observe, decide, apply and log, dt seconds after the last tick. */
static void
tick(double dt)
{
	BalloonInput input;
	BalloonLimits limits;
	BalloonDecision decision;
	MemorySignals reading;
	bool		observed;
	int64		done;

	memset(&reading, 0, sizeof(reading));
	memset(&input, 0, sizeof(input));
	observed = balloon_observe(dt, steady, &input, &reading);
	if (balloon_target_mb >= 0)
	{
		steer_to_target(&input, &decision);
		memset(&controller_state, 0, sizeof(controller_state));	/* it is about other decisions */
	}
	else if (!observed)
		(void) balloon_safety(&input, &decision);
	else
	{
		limits.low_watermark = (int64) (input.limit * balloon_low_watermark / 100);
		limits.high_watermark = (int64) (input.limit * balloon_high_watermark / 100);
		limits.max_inflate_rate = (int64) balloon_max_inflate_rate * 1024 * 1024;
		limits.max_deflate_rate = (int64) balloon_max_deflate_rate * 1024 * 1024;
		limits.max_writeback_rate = (int64) balloon_max_writeback_rate * 1024 * 1024;
		balloon_controller_step(&limits, &input, &controller_state, &decision);
	}
	steady = decision.action == BALLOON_HOLD && !balloon_prefetch_due();
	balloon->prefetch_stop = decision.action == BALLOON_INFLATE || !balloon_prefetch;
	done = apply_decision(&decision);
	since_flushed += dt;
	if (since_flushed >= FLUSH_STATS_EVERY)
		flush_io_stats();
	since_moved = done > 0 &&
		(decision.action == BALLOON_INFLATE || decision.action == BALLOON_DEFLATE)
		? 0 : since_moved + dt;
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.ticks++;
	if (balloon_observe_was_light())
		balloon->counters.light_ticks++;
	LWLockRelease(balloon->lock);
	balloon_last_decision_tick(observed ? &input : NULL, balloon_observe_source(),
							   balloon_observe_cgroup_path(&reading), &decision, done);
	log_decision(&decision, done, observed ? &input : NULL);

	if (decision.action == BALLOON_INFLATE || !balloon_prefetch)
		balloon_stop_prefetch();
	else if (decision.action == BALLOON_DEFLATE && decision.prefetch)
		balloon_allow_prefetch(done);
	balloon_prefetch_tick();
}

/*
 * Return all buffers to the pool, because pg_balloon.enabled was switched off
 * or memory cannot be released.
 */
static void
switch_off(int reason)
{
	BalloonDecision decision = {BALLOON_DEFLATE, reason, NBuffers, false, false};
	int64		done = apply_decision(&decision);

	balloon_last_decision_tick(NULL, 0, NULL, &decision, done);
	log_decision(&decision, done, NULL);
	balloon->prefetch_stop = true;	/* until the next tick, for a worker that is reading */
	balloon_stop_prefetch();
	flush_io_stats();
	balloon_observe_end();
	memset(&controller_state, 0, sizeof(controller_state));
}

/* Warn about settings that are valid alone, but not together. */
static void
check_settings(void)
{
	static bool warned = false;
	bool		inverted = balloon_enabled && balloon_low_watermark >= balloon_high_watermark;

	if (inverted && !warned)
		ereport(WARNING,
				(errmsg("pg_balloon.low_watermark (%g %%) is not below pg_balloon.high_watermark (%g %%)",
						balloon_low_watermark, balloon_high_watermark),
				 errdetail("Needy servers stop taking memory before idle servers begin to release it, "
						   "so no memory moves between them."),
				 errhint("Raise pg_balloon.high_watermark, or lower pg_balloon.low_watermark.")));
	warned = inverted;
}

/*
 * Allow another attempt after the operating system refused memory, because the
 * balloon was switched off, or off and on.
 */
static void
clear_broken(void)
{
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->broken = false;
	LWLockRelease(balloon->lock);
}

/* Clear the worker's process ID. */
static void
before_exit(int code, Datum argument)
{
	balloon_last_decision_worker(0);
}

/* Run the background worker. */
void
pg_balloon_main(Datum argument)
{
	sigjmp_buf	on_error;
	MemoryContext context;
	instr_time	then;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/*
	 * Without a database, because the worker reads no table. It needs
	 * transactions to clean up after errors.
	 */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	balloon_set_worker_gucs();

	/*
	 * Read current statistics each time, as the autovacuum launcher does. No
	 * transaction ends here that would discard an old snapshot.
	 */
	SetConfigOption("stats_fetch_consistency", "none", PGC_SUSET, PGC_S_OVERRIDE);
	wait_main = balloon_wait_event("PgBalloonMain");

	/*
	 * Startup has warned. After a crash of another process it runs again, with
	 * memory that may be usable, and restarts only a worker that has not ended.
	 */
	while (!balloon->usable && !ShutdownRequestPending)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1L, wait_main);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	if (!balloon->usable)
		proc_exit(0);
	before_shmem_exit(before_exit, (Datum) 0);
	balloon_last_decision_worker(MyProcPid);
	balloon_store_pins();		/* the predecessor may have missed a reload */
	context = AllocSetContextCreate(TopMemoryContext, "pg_balloon", ALLOCSET_DEFAULT_SIZES);

	if (sigsetjmp(on_error, 1) != 0)
	{
		error_context_stack = NULL;
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		LWLockReleaseAll();
		pgstat_report_wait_end();
		/* an error outside a transaction leaves ErrorContext, which is reset now */
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RESUME_INTERRUPTS();
		pgstat_report_activity(STATE_IDLE, NULL);

		/* A full disk does not recover at once, so wait before another attempt. */
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000L, wait_main);
	}
	PG_exception_stack = &on_error;
	INSTR_TIME_SET_CURRENT(then);
	check_settings();

	while (!ShutdownRequestPending)
	{
		/*
		 * While off, sleep, unless this worker or its predecessor still has
		 * buffers to return, or memory to release again.
		 */
		long		wait = balloon_enabled && !balloon->broken
			? balloon_interval : balloon->following || release_from >= 0 ? 0 : -1;
		double		dt;

		/*
		 * While buffers move, other servers wait for memory. Without a
		 * shortage none does.
		 */
		if (wait > 0 && since_moved < FAST_TICKS_FOR)
			wait = Max(MIN_WAIT, wait / FAST_TICKS);
		else if (wait > 0 && steady && balloon_target_mb < 0)
			wait = Max(wait, (long) Min(wait * MAX_INTERVALS, balloon_observe_safe_s() * 1000));

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (wait >= 0 ? WL_TIMEOUT : 0),
						 wait, wait_main);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		AcceptInvalidationMessages();
		if (ConfigReloadPending)
		{
			int			source = balloon_memory_source;
			bool		was_on = balloon_enabled;

			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			balloon_store_pins();
			if (balloon_enabled && !was_on)
				clear_broken();
			if (source != balloon_memory_source)
				balloon_observe_end();
			check_settings();
			since_maintenance = MAINTENANCE_EVERY;
		}
		if (ShutdownRequestPending)
			break;

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		dt = seconds_since(&then);
		since_maintenance += dt;
		if (since_maintenance >= MAINTENANCE_EVERY)
		{
			smgrreleaseall();
			release_from = Max(release_from, 0);	/* a large pool may take longer */
			since_maintenance = 0;
		}
		if (release_from >= 0)
			release_from = balloon_release_again(release_from);
		if (balloon_enabled && !balloon->broken)
		{
			if (!was_enabled)
			{
				balloon_observe_begin();
				dt = 0;			/* it slept until now */
			}
			was_enabled = balloon->following = true;
			if (dt > 0)
				tick(dt);
		}
		else
		{
			if (balloon->following)
				switch_off(balloon_enabled ? BALLOON_REASON_REFUSED : BALLOON_REASON_SWITCHED_OFF);
			was_enabled = balloon->following = false;
			if (!balloon_enabled)
				clear_broken();
		}
	}
	/* not 0, so that the postmaster restarts it after a crash of another process */
	proc_exit(1);
}

/* Register the background worker with the postmaster. */
static void
register_worker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 5;
	strlcpy(worker.bgw_library_name, "pg_balloon", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_balloon_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "pg_balloon", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pg_balloon", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

void		_PG_init(void);

static shmem_request_hook_type previous_request = NULL;
static shmem_startup_hook_type previous_startup = NULL;

/* Request shared memory and locks. */
static void
request(void)
{
	if (previous_request)
		previous_request();
	RequestAddinShmemSpace(MAXALIGN(balloon_state_size()));
	RequestAddinShmemSpace(MAXALIGN(ghosts_size()));
	RequestAddinShmemSpace(MAXALIGN(balloon_last_decision_size()));
	RequestAddinShmemSpace(balloon_probe_size());
	RequestNamedLWLockTranche("pg_balloon", 3);
}

/* Attach to shared memory, and test whether the balloon works on this server. */
static void
startup(void)
{
	bool		found;
	void	   *probe;
	LWLockPadded *locks;

	if (previous_startup)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	locks = GetNamedLWLockTranche("pg_balloon");
	probe = ShmemInitStruct("pg_balloon probe", balloon_probe_size(), &found);
	ghosts_attach(&locks[1].lock);
	balloon_last_decision_attach(&locks[2].lock);
	if (balloon_state_attach(&locks[0].lock))
	{
		balloon_store_pins();
		balloon->usable = balloon_can_release(probe, balloon->unusable_reason, BALLOON_TEXT);
		if (!balloon->usable)
			ereport(WARNING,
					(errmsg("pg_balloon cannot be used on this server"),
					 errdetail("%s", balloon->unusable_reason)));
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Initialize the library. */
void
_PG_init(void)
{
	/*
	 * Without preloading, CREATE EXTENSION still works, and the functions
	 * report what to do.
	 */
	if (!process_shared_preload_libraries_in_progress)
		return;
	balloon_define_gucs();
	previous_request = shmem_request_hook;
	shmem_request_hook = request;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
	balloon_count_sessions();
	register_worker();
}
