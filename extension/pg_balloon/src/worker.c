/*
 * worker.c
 *		The background worker: look, ask the law, act, say so.
 *
 * It looks each tick without a transaction. Only to act does it begin one, since
 * writing dirty pages needs a resource owner, and an error needs cleaning up. While
 * pg_balloon.enabled is off it sleeps until somebody reloads the configuration.
 */
#include "postgres.h"

#include "access/xact.h"
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
#include "storage/sinval.h"
#include "storage/smgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "buffers.h"
#include "compat.h"
#include "inflate.h"
#include "law.h"
#include "look.h"
#include "prefetch.h"
#include "report.h"
#include "say.h"
#include "settings.h"
#include "state.h"
#include "worker.h"

#define MOVING 10				/* times the frequency of looks while something moves … */
#define LEAST_WAIT 10			/* … in milliseconds between them at least … */
#define MOVING_FOR 0.5			/* … and for so many seconds after it: two servers that trade move in turns */
#define LONGEST_ACT 0.5			/* seconds of giving or writing ahead: writing can be slow, and the server may need memory meanwhile */
#define SAFE 4					/* times the interval between looks at most, while memory cannot become short that soon */
#define TIDY_EVERY 60.0			/* seconds: files of relations dropped meanwhile must not stay open, nor the balloon be in memory */
#define PUBLISH_EVERY 1.0		/* seconds between two additions of what was written to pg_stat_io */

PGDLLEXPORT void pg_balloon_main(Datum argument);

/* What the worker remembers from tick to tick. */
static BalloonMind mind;
static double since_tidied = 0;
static double since_published = 0;
static int	returning = -1;		/* chunk from which on the balloon's memory is yet to be returned again; -1: none */
static double since_moved = MOVING_FOR; /* seconds since a tick moved something */
static bool calm = false;		/* the last tick had nothing to do, and nothing is to be read back */
static bool was_enabled = false;

static uint32 wait_main;		/* wait event PgBalloonMain; "Extension" before 17 */

void
balloon_register_worker(void)
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
 * What was written, for pg_stat_io. By force: else PostgreSQL puts it off to a later call, and judges what is late by the end of the last
 * transaction, which does not move while the worker has nothing to do. Where there is nothing to add it costs nothing.
 */
static void
publish(void)
{
	pgstat_report_stat(true);
	since_published = 0;
}

/* Do what was decided. Returns how many buffers moved or were written. */
static int64
act(const BalloonVerdict *verdict)
{
	int64		done = 0;

	if (verdict->act == BALLOON_STAY)
		return 0;
	SetCurrentStatementStartTimestamp();	/* which is what pg_stat_activity tells of a transaction */
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, NULL);
	if (verdict->act == BALLOON_TAKE)
	{
		done = balloon_deflate(verdict->buffers);
		balloon_look_gained(done);
	}
	else if (verdict->act == BALLOON_CLEAN)
		done = balloon_write(verdict->buffers, LONGEST_ACT);
	else
		done = balloon_inflate(verdict->buffers, verdict->write, verdict->why != BALLOON_WHY_TARGET, LONGEST_ACT);
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);

	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	if (done > 0 && verdict->act == BALLOON_GIVE)
		balloon->counters.gives++;
	else if (done > 0 && verdict->act == BALLOON_TAKE)
		balloon->counters.takes++;
	LWLockRelease(balloon->lock);
	return done;
}

/* Towards pg_balloon.target, at no more than the rates, and no further than the law itself would go. */
static void
follow_target(const BalloonView *view, BalloonVerdict *verdict)
{
	int64		wanted = Min((int64) balloon_target_mb * 1024 * 1024 / BLCKSZ, view->ballooned + balloon_room(view));
	int64		missing = wanted - view->ballooned;
	int			rate = missing > 0 ? balloon_yield_rate : balloon_growth_rate;

	if (balloon_safety(view, verdict))
		return;
	verdict->why = BALLOON_WHY_TARGET;
	if (missing == 0)
		return;
	verdict->act = missing > 0 ? BALLOON_GIVE : BALLOON_TAKE;
	verdict->write = true;
	verdict->prefetch = missing < 0;
	verdict->buffers = Min(missing > 0 ? missing : -missing, Max(1, (int64) (rate * Min(view->dt, 1.0) * 1024 * 1024 / BLCKSZ)));
}

static void
tick(double dt)
{
	BalloonView view;
	BalloonTuning tuning;
	BalloonVerdict verdict;
	SignalReading reading;
	bool		seen;
	int64		done;

	memset(&reading, 0, sizeof(reading));
	memset(&view, 0, sizeof(view));
	seen = balloon_look(dt, calm, &view, &reading);
	if (balloon_target_mb >= 0)
		follow_target(&view, &verdict);
	else if (!seen)
		(void) balloon_safety(&view, &verdict);
	else
	{
		tuning.reserve_low = (int64) (view.limit * balloon_reserve_low / 100);
		tuning.reserve_high = (int64) (view.limit * balloon_reserve_high / 100);
		tuning.yield_rate = (int64) balloon_yield_rate * 1024 * 1024;
		tuning.growth_rate = (int64) balloon_growth_rate * 1024 * 1024;
		tuning.clean_rate = (int64) balloon_clean_rate * 1024 * 1024;
		balloon_law(&tuning, &view, &mind, &verdict);
	}
	calm = verdict.act == BALLOON_STAY && !balloon_prefetch_due();
	balloon->prefetch_stop = verdict.act == BALLOON_GIVE;
	done = act(&verdict);
	since_published += dt;
	if (since_published >= PUBLISH_EVERY)
		publish();
	since_moved = done > 0 && (verdict.act == BALLOON_GIVE || verdict.act == BALLOON_TAKE) ? 0 : since_moved + dt;
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.ticks++;
	if (balloon_look_glanced())
		balloon->counters.glances++;
	LWLockRelease(balloon->lock);
	balloon_report_tick(seen ? &view : NULL, balloon_look_source(), balloon_look_place(&reading), &verdict, done);
	balloon_say(&verdict, done, seen ? &view : NULL);

	if (verdict.act == BALLOON_GIVE || !balloon_prefetch)
		balloon_stop_prefetch();
	else if (verdict.act == BALLOON_TAKE && verdict.prefetch)
		balloon_allow_prefetch(done);
	balloon_prefetch_tick();
}

/* pg_balloon.enabled has been switched off, or memory cannot be given: the pool gets everything back. */
static void
switch_off(int why)
{
	BalloonVerdict verdict = {BALLOON_TAKE, why, NBuffers, false, false};
	int64		done = act(&verdict);

	balloon_report_tick(NULL, 0, NULL, &verdict, done);
	balloon_say(&verdict, done, NULL);
	balloon_stop_prefetch();
	publish();
	balloon_look_end();
	memset(&mind, 0, sizeof(mind));
}

/* Settings that the server takes one by one, but that do not go together. */
static void
check_settings(void)
{
	static bool said = false;
	bool		wrong = balloon_enabled && balloon_reserve_low >= balloon_reserve_high;

	if (wrong && !said)
		ereport(WARNING,
				(errmsg("pg_balloon.reserve_low (%g %%) is not below pg_balloon.reserve_high (%g %%)",
						balloon_reserve_low, balloon_reserve_high),
				 errdetail("Needy servers stop taking memory before idle ones begin to give it, so that nothing moves between them."),
				 errhint("Set pg_balloon.reserve_high higher, or pg_balloon.reserve_low lower.")));
	said = wrong;
}

/* Switched off, or off and on, it tries again what the operating system refused. */
static void
forgive(void)
{
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->broken = false;
	LWLockRelease(balloon->lock);
}

static void
leave(int code, Datum argument)
{
	balloon_report_worker(0);
}

void
pg_balloon_main(Datum argument)
{
	sigjmp_buf	on_error;
	MemoryContext context;
	instr_time	then;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/* No database: the worker reads no table. It needs transactions for cleaning up after errors. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	balloon_settings_of_worker();

	/* Each look at the statistics is a new one, as in the autovacuum launcher: there is no transaction at whose end an old one goes. */
	SetConfigOption("stats_fetch_consistency", "none", PGC_SUSET, PGC_S_OVERRIDE);
	wait_main = balloon_wait_event("PgBalloonMain");
	if (!balloon->usable)
		proc_exit(0);			/* said at the start; with 0 it is not started again */
	before_shmem_exit(leave, (Datum) 0);
	balloon_report_worker(MyProcPid);
	context = AllocSetContextCreate(TopMemoryContext, "pg_balloon", ALLOCSET_DEFAULT_SIZES);

	if (sigsetjmp(on_error, 1) != 0)
	{
		error_context_stack = NULL;
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		LWLockReleaseAll();
		pgstat_report_wait_end();
		MemoryContextSwitchTo(context); /* an error outside of a transaction leaves ErrorContext, which is emptied now */
		FlushErrorState();
		RESUME_INTERRUPTS();
		pgstat_report_activity(STATE_IDLE, NULL);

		/* A full disk does not get better by trying again at once. */
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000L, wait_main);
	}
	PG_exception_stack = &on_error;
	INSTR_TIME_SET_CURRENT(then);
	check_settings();

	while (!ShutdownRequestPending)
	{
		/* Switched off it sleeps, but for what it, or the one before it, has still to give back, or to return again. */
		long		wait = balloon_enabled && !balloon->broken ? balloon_interval : balloon->following || returning >= 0 ? 0 : -1;
		double		dt;

		/* While memory changes hands others wait for it; at peace nobody does. */
		if (wait > 0 && since_moved < MOVING_FOR)
			wait = Max(LEAST_WAIT, wait / MOVING);
		else if (wait > 0 && calm && balloon_target_mb < 0)
			wait = Max(wait, (long) Min(wait * SAFE, balloon_look_safe() * 1000));

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (wait >= 0 ? WL_TIMEOUT : 0), wait, wait_main);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		AcceptInvalidationMessages();
		if (ConfigReloadPending)
		{
			int			source = balloon_source;
			bool		was_on = balloon_enabled;

			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			if (balloon_enabled && !was_on)
				forgive();
			if (source != balloon_source)
				balloon_look_end();
			check_settings();
			since_tidied = TIDY_EVERY;
		}
		if (ShutdownRequestPending)
			break;

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		dt = seconds_since(&then);
		since_tidied += dt;
		if (since_tidied >= TIDY_EVERY)
		{
			smgrreleaseall();
			returning = 0;
			since_tidied = 0;
		}
		if (returning >= 0)
			returning = balloon_return_again(returning);
		if (balloon_enabled && !balloon->broken)
		{
			if (!was_enabled)
			{
				balloon_look_begin();
				dt = 0;			/* it has slept until now */
			}
			was_enabled = balloon->following = true;
			if (dt > 0)
				tick(dt);
		}
		else
		{
			if (balloon->following)
				switch_off(balloon_enabled ? BALLOON_WHY_REFUSED : BALLOON_WHY_SWITCHED_OFF);
			was_enabled = balloon->following = false;
			if (!balloon_enabled)
				forgive();
		}
	}
	proc_exit(1);				/* not 0, so that the postmaster starts it again after a crash of another process */
}
