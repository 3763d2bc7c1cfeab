/*
 * observe.c
 *		Measurements of one tick: memory, use of the pool, misses.
 *
 * A tick needs no transaction. It reads files that are open already, shared
 * memory, and the server's statistics.
 *
 * Nearly all of a full tick's cost is the sample and the long files of the
 * memory signals. Both are left out for up to a second (a light tick) if the
 * balloon is empty or kept at pg_balloon.target, the controller has nothing to
 * do, and far more memory than the high watermark is available. The controller
 * runs in light ticks, too. Their values that show a shortage are current, only
 * the refault rate can be a second old. A light tick becomes a full one as
 * soon as anything is in doubt.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgwriter.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "actuator.h"
#include "compat.h"
#include "guc.h"
#include "observe.h"
#include "pool_sample.h"
#include "rates.h"
#include "shared_state.h"

/*
 * Count the sessions that wait for a page of a table or index to be read,
 * which is the time lost in seconds per second.
 *
 * It is a sample, so no lock is taken. Autovacuum and this extension's
 * prefetch do not count, because no client waits for them. Neither do
 * processes without a database: an I/O worker of PostgreSQL 18 reads for a
 * session, which is counted itself if it waits, and a standby's replay is no
 * session.
 */
static int
count_waiting_sessions(void)
{
	int			waiting = 0;

	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		uint32		event = *(volatile uint32 *) &proc->wait_event_info;

		if (proc->pid != 0 && OidIsValid(proc->databaseId) && balloon_is_read(event) &&
			!(proc->statusFlags & PROC_IS_AUTOVACUUM) && proc->pid != balloon->prefetcher)
			waiting++;
	}
	return waiting;
}

/* Seconds between samples. Within less, too few pages are accessed for a rate. */
#define SAMPLE_EVERY 0.1
#define LIGHT_FOR 1.0			/* Seconds of light ticks between two full ones. */
/* Maximum of that as a share of idle_after. A longer sample cannot show the access rate. */
#define LIGHT_SHARE 0.2
/*
 * A full tick is due once the clock hand has passed this share of the pool,
 * because it lowers the usage counts that the sample compares.
 */
#define MAX_SWEPT (1.0 / 8)
/* Light ticks require this multiple of the high watermark to be available. */
#define PLENTIFUL 2.0
/*
 * Light ticks require fewer bytes refaulted per second, unless that much
 * memory is unclaimed. The controller reacts to three times as many.
 */
#define FEW_REFAULTED (100.0 * 4096)
/* Bytes per second that one CPU can use up at most, by writing to memory. */
#define MAX_USE_RATE (8.0 * 1024 * 1024 * 1024)
/* Seconds after which files are reopened, because the server may have moved to another cgroup. */
#define REOPEN_EVERY 30.0
/* Seconds; time constant with which misses decay while most pages were prefetched. */
#define MISSES_DECAY 3.0
/* Share of prefetched pages above which misses cannot be separated from them. */
#define MOSTLY_READ_BACK 0.5
/* Milliseconds; a background writer that publishes less often is too slow to count by. */
#define MAX_WRITER_DELAY 1000

/* State kept from tick to tick. */
static MemorySignalReader reader;
static bool reading_signals = false;
static bool warned_no_signals = false;
static bool told_not_counted = false;	/* "cannot see whether its pool is being swapped" */
static MemorySignals last;
static bool have_last = false;
static char last_paths[2 * MEMORY_SIGNALS_PATH];	/* cgroups with the tightest limit, and its own */
static PoolState pool_state = {.hot = 1.0};
static bool no_shortage = false;	/* the last full tick found no shortage */
static bool was_light = false;	/* the last tick was light */
static double since_full = 0;	/* seconds since the last full tick */
static double max_use_rate = MAX_USE_RATE;	/* bytes per second that all CPUs can use up */
static double safe_s = 0;		/* seconds within which memory cannot become short */
static MemorySignalRates rates;	/* as of the last full tick */
static double since_sample = 0;
static uint64 sampled_at = 0;	/* clock hand when the sample was drawn */
static double since_open = 0;
static int64 last_read_back = 0;
static double read_back_rate = 0;	/* pages prefetched per second, over the last sample */
static MissRate miss_rate;
static double last_misses = 0;
static uint64 last_hand = 0;

/*
 * Open the signals. Returns false if they are missing.
 *
 * fd.c must know of files that it did not open. They are reserved first, so
 * that it closes some of its own if the process has too many.
 */
static bool
open_signals(void)
{
	int			files = 0;

	for (int i = 0; i < MEMORY_SIGNALS_FILES; i++)
		ReserveExternalFD();
	reading_signals = memory_signals_open(&reader, "", balloon_memory_source);
	if (reading_signals)
		files = memory_signals_files(&reader);
	for (int i = files; i < MEMORY_SIGNALS_FILES; i++)
		ReleaseExternalFD();
	return reading_signals;
}

/* Close the signals; the next tick reopens them. Earlier values stay comparable. */
static void
close_signals(void)
{
	if (!reading_signals)
		return;
	for (int files = memory_signals_files(&reader); files > 0; files--)
		ReleaseExternalFD();
	memory_signals_close(&reader);
	reading_signals = false;
}

/* Warn that there are no signals, once until there are. */
static void
warn_no_signals(void)
{
	if (!warned_no_signals && reader.error != 0)
	{
		errno = reader.error;
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("pg_balloon could not open all memory signals: %m"),
				 errdetail("Nothing is decided without them. The worker tries again in each tick.")));
	}
	else if (!warned_no_signals && reader.outside)
		ereport(WARNING,
				(errmsg("pg_balloon cannot find its cgroup"),
				 errdetail("The mounted cgroups are those of an outer cgroup namespace, where the "
						   "path of this server is not visible. Nothing is decided."),
				 errhint("Run the container in the host's cgroup namespace (--cgroupns=host), mount "
						 "its own cgroups, or set pg_balloon.memory_source to system.")));
	else if (!warned_no_signals)
		ereport(WARNING,
				(errmsg("pg_balloon found no memory signals of source \"%s\"",
						memory_source_name(balloon_memory_source)),
				 errhint("Set pg_balloon.memory_source to auto.")));
	warned_no_signals = true;
}

/* Start observing after a pause. Values from before the pause do not count. */
void
balloon_observe_begin(void)
{
	have_last = no_shortage = false;
	since_sample = 0;
	memset(&miss_rate, 0, sizeof(miss_rate));
	pool_state = (PoolState) {.hot = 1.0};
	pool_sample_begin();
}

/* Stop observing, because of a pause or before a change of the source. */
void
balloon_observe_end(void)
{
	close_signals();
	have_last = no_shortage = false;
}

/* Return true if the last tick was light. */
bool
balloon_observe_was_light(void)
{
	return was_light;
}

/*
 * Return the seconds for which the next tick can wait if the controller has
 * nothing to do: within that time, all CPUs together cannot use up the memory
 * available beyond the reserve of light ticks at any level. 0 during a
 * shortage.
 */
double
balloon_observe_safe_s(void)
{
	return no_shortage ? safe_s : 0;
}

/*
 * Note that buffers have left the balloon. They are unused, and the next
 * sample will count them.
 */
void
balloon_observe_deflated(int64 buffers)
{
	pool_state.unused += buffers;
}

/* Return the source of the memory signals. */
int
balloon_observe_source(void)
{
	return reader.source;
}

/* Return the cgroup with the tightest limit; NULL if unknown. */
const char *
balloon_observe_cgroup_path(const MemorySignals *reading)
{
	return reading->tight >= 0 && reading->tight < reader.nlevels
		? reader.levels[reading->tight].path : NULL;
}

/* Open the signals if they are closed, or reopen them if that is due. */
static bool
have_signals(double dt)
{
	since_open += dt;
	if (reading_signals && since_open >= REOPEN_EVERY)
		close_signals();
	if (!reading_signals)
	{
		long		cpus = sysconf(_SC_NPROCESSORS_ONLN);

		max_use_rate = MAX_USE_RATE * Max(1, cpus);
		since_open = 0;
		if (open_signals())
			warned_no_signals = false;
		else
			warn_no_signals();
	}
	return reading_signals;
}

/*
 * Set the pages read into the pool per second, and the misses among them.
 *
 * The server counts each buffer that it allocates for a page, except for
 * reused ones of a ring. Its background writer publishes the count every
 * bgwriter_delay while there are any. Reading it there costs the backends
 * nothing, and no page is missed, while a few hundred per second hardly show
 * in a sample. If the writer is silent or too slow, the sample is used. If no
 * buffer is unused, the clock hand has passed at least one buffer for each
 * page, which bounds the sample's error.
 */
static void
update_miss_rate(double dt, uint64 hand, int64 read_back, BalloonInput *input)
{
	double		swept;
	double		own = read_back_rate;

	swept = last_hand
		? (double) (hand - last_hand) * (NBuffers - input->ballooned) / NBuffers / dt : 0;
	last_hand = hand;
	input->filled = pool_state.unused == 0 ? Min(pool_state.filled, swept) : pool_state.filled;
	if (BgWriterDelay <= MAX_WRITER_DELAY &&
		miss_rate_update(&miss_rate, dt, BgWriterDelay / 1000.0,
						 pgstat_fetch_stat_bgwriter()->buf_alloc, read_back))
	{
		input->filled = miss_rate.filled;
		own = miss_rate.read_back_filled;
	}

	/*
	 * Prefetched pages show no need. If most pages were prefetched, the small
	 * difference of two large numbers is meaningless.
	 */
	input->misses = own > MOSTLY_READ_BACK * input->filled
		? last_misses * exp(-dt / MISSES_DECAY) : Max(0, input->filled - own);
	last_misses = input->misses;
}

/*
 * Return true if light ticks suffice for the balloon: it is empty, or has a
 * target size.
 */
static bool
light_ticks_suffice(int64 ballooned)
{
	return ballooned == 0 || balloon_target_mb >= 0;
}

/*
 * Set the input's values about the pool.
 *
 * When a shortage begins, the sample is read at any age, and interpreted as if
 * it were no older than others, so that a pool that has just become busy does
 * not look idle. So is a sample that is late because this process, or its
 * container, was stopped: nearly every page of a busy pool was accessed since.
 */
static void
observe_pool(double dt, bool shortage_began, uint64 hand, int64 read_back, BalloonInput *input)
{
	double		longest = 2 * Max(LIGHT_SHARE * balloon_idle_after, balloon_interval) / 1000.0;

	if (!was_light && (shortage_began || since_sample >= SAMPLE_EVERY))
	{
		bool		late = shortage_began || since_sample > Max(SAMPLE_EVERY, longest);

		pool_sample_read(since_sample, late ? SAMPLE_EVERY : 0, balloon_idle_after / 1000.0,
						 &pool_state);
		pool_sample_draw(no_shortage);
		sampled_at = hand;
		read_back_rate = (read_back - last_read_back) / since_sample;
		last_read_back = read_back;
		since_sample = 0;
	}
	else if (input->ballooned > 0)
		/* running out of buffers cannot wait for the next sample */
		pool_state.pinned = pool_sample_pinned();

	/*
	 * Deflated buffers are in the free list. Once it is empty, all of them are
	 * in use, and more may be needed.
	 */
	if (!have_free_buffer())
		pool_state.unused = 0;
	input->dt = dt;
	input->pool = NBuffers;
	input->unused = pool_state.unused;
	input->floor = balloon_floor();
	input->ceiling = balloon_ceiling();
	input->block = BLCKSZ;
	input->page = sysconf(_SC_PAGESIZE);
	input->hot = pool_state.hot;
	input->pinned = NBuffers > input->ballooned
		? (double) pool_state.pinned / (NBuffers - input->ballooned) : 0;
	input->dirty = NBuffers > input->ballooned + input->unused
		? (double) pool_state.dirty / (NBuffers - input->ballooned - input->unused) : 0;
}

/*
 * Return the bytes that must be available for light ticks. With that much,
 * page cache added or dropped since the last full tick makes no difference.
 */
static double
light_tick_reserve(const MemorySignals *now)
{
	return PLENTIFUL * balloon_high_watermark / 100 * now->limit;
}

/*
 * Read the signals lightly. Returns false if a full read is due, that many
 * seconds after the last one.
 */
static bool
light_tick(double seconds, uint64 hand, MemorySignals *now)
{
	return seconds < Min(LIGHT_FOR, LIGHT_SHARE * balloon_idle_after / 1000.0) &&
		hand - sampled_at < MAX_SWEPT * NBuffers && memory_signals_light_read(&reader, now) &&
		now->tight == last.tight && now->available >= light_tick_reserve(now);
}

/* Update the rates since the last full tick, and whether there is no shortage. */
static void
compare_signals(double seconds, double since_light, int64 ballooned, const MemorySignals *now)
{
	const char *tight = balloon_observe_cgroup_path(now);
	char		paths[sizeof(last_paths)];

	/*
	 * Values of the same level are not comparable if the server was moved to
	 * another cgroup.
	 */
	snprintf(paths, sizeof(paths), "%s %s", tight ? tight : "", reader.levels[0].path);
	have_last = have_last && strcmp(last_paths, paths) == 0;
	strlcpy(last_paths, paths, sizeof(last_paths));
	memory_signals_compare(have_last ? &last : NULL, now, seconds, since_light, &rates);
	no_shortage = have_last && last.tight == now->tight && light_ticks_suffice(ballooned) &&
		now->available >= light_tick_reserve(now) &&
		(now->unclaimed >= light_tick_reserve(now) ||
		 (rates.refaults * sysconf(_SC_PAGESIZE) <= FEW_REFAULTED && rates.swapping <= 0));
	if (now->own_refaults < 0 && !told_not_counted)
		ereport(LOG,
				(errmsg("pg_balloon cannot see whether its pool is being swapped"),
				 errdetail("The kernel does not count refaults of anonymous memory, as Linux "
						   "before 5.9.")));
	told_not_counted = now->own_refaults < 0;
	last = *now;
	have_last = true;
}

/*
 * Measure everything that the controller needs, dt seconds after the last
 * tick.
 *
 * The tick may be light while the controller has nothing to do (steady).
 * Returns false if there is no earlier value to compare with. Then only the
 * pool's values are valid.
 */
bool
balloon_observe(double dt, bool steady, BalloonInput *input, MemorySignals *now)
{
	BalloonLastDecision reported;
	int64		read_back = pg_atomic_read_u64(&balloon->read_back);
	uint64		hand = pool_clock_hand();
	bool		first = !have_last;
	bool		had_no_shortage = no_shortage;
	bool		may_be_light;
	bool		have_input;

	LWLockAcquire(balloon->lock, LW_SHARED);
	input->ballooned = balloon->nballooned;
	LWLockRelease(balloon->lock);

	since_sample += dt;
	since_full += dt;
	have_input = have_signals(dt);
	reader.low_watermark = balloon_low_watermark / 100;
	reader.high_watermark = balloon_high_watermark / 100;
	may_be_light = steady && no_shortage && light_ticks_suffice(input->ballooned);
	was_light = have_input && may_be_light && light_tick(since_full, hand, now);
	if (have_input && !was_light && !memory_signals_read(&reader, may_be_light, now))
	{
		balloon_observe_end();
		have_input = false;
	}
	if (have_input && !was_light)
		compare_signals(since_full, dt, input->ballooned, now);
	if (!was_light)
		since_full = 0;
	observe_pool(dt, had_no_shortage && !no_shortage, hand, read_back, input);
	if (!have_input)
		return false;
	safe_s = (now->reachable - light_tick_reserve(now)) / max_use_rate;

	update_miss_rate(dt, hand, read_back, input);
	balloon_last_decision_read(&reported);
	input->miss_cost = reported.miss_cost > 0 ? reported.miss_cost : -1;

	input->waiting = count_waiting_sessions();
	input->limit = now->limit;
	input->limit_fall = now->limit_fall;
	input->available = now->available;
	input->reachable = now->reachable;
	input->reachable_high = now->reachable_high;
	input->unclaimed = now->unclaimed;
	input->refaults = rates.refaults;
	input->own_refaults = rates.own_refaults;
	input->swapping = rates.swapping;
	input->stall = rates.stall;
	return !first;
}
