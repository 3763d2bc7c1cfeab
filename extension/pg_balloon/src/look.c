/*
 * look.c
 *		What the worker sees in a tick: memory, by the signals; the pool, by a sample of it; its misses.
 *
 * Only files that are open already are read, shared memory, and the statistics that others keep; no transaction is needed.
 *
 * Nearly all of what a look costs are the sample and the long tables among the signals. At peace, when the balloon is empty or kept at
 * the size of a target, nothing is to be done and far more than the reserve is available, both are left out for a second: that is a
 * glance. The law is asked after a glance as after a look: what tells it of a shortage is fresh in either, but for pages that are needed
 * again, which are seen up to a second later; and whatever a glance cannot be sure of makes it a look.
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgwriter.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"

#include "compat.h"
#include "floors.h"
#include "look.h"
#include "misses.h"
#include "report.h"
#include "sampling.h"
#include "settings.h"
#include "state.h"

#define SAMPLE_EVERY 0.1		/* seconds: sooner too few buffers have been touched to tell a rate */
#define GLANCES 1.0				/* seconds at peace between two looks, … */
#define GLANCES_SHARE 0.2		/* … but this share of the horizon at most: a longer sample cannot tell how often a page is touched, … */
#define SWEPT (1.0 / 8)			/* … and until the clock hand has passed this share of the pool, lowering what the sample goes by */
#define PLENTY 2.0				/* times reserve_high: with less available there is no peace … */
#define FEW_REFAULTS 100.0		/* … nor, unless so much is used by nobody, with more pages needed again per second, well below what the law heeds */
#define FASTEST (8.0 * 1024 * 1024 * 1024) /* bytes per second that each CPU may use up: none writes memory faster */
#define REOPEN_EVERY 30.0		/* seconds: the server may have been moved to another group */
#define FADING 3.0				/* seconds: the time constant with which misses are forgotten while … */
#define MOSTLY 0.5				/* … the share of our own among the pages that came in is so large that they are not told from it */
#define SLOWEST_COUNT 1000		/* milliseconds: a count of pages that is published less often comes too late to be of use */

/* What is remembered from look to look. */
static SignalReader reader;
static bool reading_signals = false;
static bool said_no_signals = false;
static SignalReading last;
static bool have_last = false;
static char last_place[SIGNALS_PLACE];	/* the group whose limit was the tightest then */
static double hot = 1.0;
static BalloonPoolState pool_state;
static bool peace = false;		/* by the last look, nothing is short */
static bool glanced = false;	/* the last look was a glance */
static double since_look = 0;	/* seconds of glances */
static double fastest = FASTEST; /* bytes per second that all CPUs may use up */
static double safe = 0;			/* seconds in which memory cannot become short */
static SignalRates rates;		/* as of the last look: a glance does not see them */
static double since_sample = 0;
static uint64 sampled_at = 0;	/* the clock hand when the sample was drawn */
static double since_open = 0;
static int64 last_read_back = 0;
static double read_back_rate = 0;	/* pages read back per second, over the last sample */
static MissMeter meter;
static double last_misses = 0;
static uint64 last_hand = 0;

/* Signals are opened anew by the next look; what was seen is still comparable. */
static void
close_signals(void)
{
	if (reading_signals)
		signals_close(&reader);
	reading_signals = false;
}

/* After a time without looks: what was seen before it says nothing of now. */
void
balloon_look_begin(void)
{
	have_last = peace = false;
	since_sample = 0;
	memset(&meter, 0, sizeof(meter));
	balloon_sample_start(false);
}

/* No look for some time, or the next one by other signals. */
void
balloon_look_end(void)
{
	close_signals();
	have_last = peace = false;
}

/* Was the last look only a glance? */
bool
balloon_look_glanced(void)
{
	return glanced;
}

/*
 * Seconds for which nobody need look, if the law has nothing to do: what is available at any level beyond plenty outlasts whatever
 * all CPUs may use up. 0 where there is no peace.
 */
double
balloon_look_safe(void)
{
	return peace ? safe : 0;
}

/* So many buffers have come out of the balloon: unused ones, which the next sample will see. */
void
balloon_look_gained(int64 buffers)
{
	pool_state.unused += buffers;
}

/* Where the signals of a reading come from. */
int
balloon_look_source(void)
{
	return reader.source;
}

/* The group whose limit is the tightest; NULL if it is not known. */
const char *
balloon_look_place(const SignalReading *reading)
{
	return reading->tight >= 0 && reading->tight < reader.nlevels ? reader.levels[reading->tight].place : NULL;
}

/* Open the signals if they are not, or anew if it is time. */
static bool
have_signals(double dt)
{
	since_open += dt;
	if (reading_signals && since_open >= REOPEN_EVERY)
		close_signals();
	if (!reading_signals)
	{
		long		cpus = sysconf(_SC_NPROCESSORS_ONLN);

		fastest = FASTEST * Max(1, cpus);
		since_open = 0;
		reading_signals = signals_open(&reader, "", balloon_source);
		if (!reading_signals && !said_no_signals)
			ereport(WARNING,
					(errmsg("pg_balloon finds no memory signals of source \"%s\"", signal_source_name(balloon_source)),
					 errhint("Set pg_balloon.source to auto.")));
		said_no_signals = !reading_signals;
	}
	return reading_signals;
}

/*
 * Pages that came in, and those of them that are misses.
 *
 * The server counts each buffer that is taken to put a page in, except those that a ring uses again, and its background writer
 * adds the count to the statistics, every bgwriter_delay while there are any. To read it there costs the backends nothing, and
 * none is overlooked, while a few hundred per second are hardly seen in a sample. Where the writer is silent, or too slow, there
 * is the sample; when no buffer is unused the clock hand has passed at least one buffer for each page, which bounds its error.
 */
static void
see_misses(double dt, uint64 hand, int64 read_back, BalloonView *view)
{
	double		swept;
	double		own = read_back_rate;

	swept = last_hand ? (double) (hand - last_hand) * (NBuffers - view->ballooned) / NBuffers / dt : 0;
	last_hand = hand;
	view->filled = pool_state.unused == 0 ? Min(pool_state.filled, swept) : pool_state.filled;
	if (BgWriterDelay <= SLOWEST_COUNT &&
		misses_see(&meter, dt, BgWriterDelay / 1000.0, pgstat_fetch_stat_bgwriter()->buf_alloc, read_back))
	{
		view->filled = meter.filled;
		own = meter.own_filled;
	}

	/* What we read back ourselves is no need; and where it is most of all, the small difference of two large numbers says nothing. */
	view->misses = own > MOSTLY * view->filled ? last_misses * exp(-dt / FADING) : Max(0, view->filled - own);
	last_misses = view->misses;
}

/* The buffers that the clock hand has passed in all. */
static uint64
clock_hand(void)
{
	uint32		passes;
	uint64		hand = StrategySyncStart(&passes, NULL);

	return hand + (uint64) passes * NBuffers;
}

/* Does nobody need more frequent looks for the balloon's sake? It is empty, or its size has been told. */
static bool
settled(int64 ballooned)
{
	return ballooned == 0 || balloon_target_mb >= 0;
}

/*
 * What the law must see of the pool, now that so many pages have been read back. When peace ends its sample is looked at whatever its age,
 * and by what it would say if it were no older than others: a pool that has just become busy is not to look idle.
 */
static void
look_at_pool(double dt, bool peace_ended, uint64 hand, int64 read_back, BalloonView *view)
{
	if (!glanced && (peace_ended || since_sample >= SAMPLE_EVERY))
	{
		balloon_sample_read(since_sample, peace_ended ? SAMPLE_EVERY : 0, balloon_horizon / 1000.0, &hot, &pool_state);
		balloon_sample_start(peace);
		sampled_at = hand;
		read_back_rate = (read_back - last_read_back) / since_sample;
		last_read_back = read_back;
		since_sample = 0;
	}
	else if (view->ballooned > 0)
		pool_state.pinned = balloon_sample_pinned();	/* whoever runs out of buffers cannot wait for the next look */

	/* Buffers that were taken back come from the free list: once it is empty they are in use, and there may be need of more. */
	if (!have_free_buffer())
		pool_state.unused = 0;
	view->dt = dt;
	view->pool = NBuffers;
	view->unused = pool_state.unused;
	view->floor = balloon_floor();
	view->ceiling = balloon_ceiling();
	view->block = BLCKSZ;
	view->hot = hot;
	view->pinned = NBuffers > view->ballooned ? (double) pool_state.pinned / (NBuffers - view->ballooned) : 0;
	view->dirty = NBuffers > view->ballooned + view->unused
		? (double) pool_state.dirty / (NBuffers - view->ballooned - view->unused) : 0;
}

/* Bytes that must be available for peace: page cache that has come or gone since the last look then makes no difference. */
static double
reserve(const SignalReading *now)
{
	return PLENTY * balloon_reserve_high / 100 * now->limit;
}

/* Is it enough to glance at the signals, after so many seconds since the last look? Then this is what was read. */
static bool
glance(double seconds, uint64 hand, SignalReading *now)
{
	return seconds < Min(GLANCES, GLANCES_SHARE * balloon_horizon / 1000.0) && hand - sampled_at < SWEPT * NBuffers &&
		signals_glance(&reader, now) && now->tight == last.tight && now->available >= reserve(now);
}

/* What has changed since the last look, seconds ago, and whether there is peace. */
static void
compare(double seconds, double since_glance, int64 ballooned, const SignalReading *now)
{
	const char *place = balloon_look_place(now);

	/* The same level of another group, to which the server has been moved, counts otherwise. */
	if (place == NULL)
		place = "";
	have_last = have_last && strcmp(last_place, place) == 0;
	strlcpy(last_place, place, sizeof(last_place));
	signals_compare(have_last ? &last : NULL, now, seconds, since_glance, &rates);
	peace = have_last && last.tight == now->tight && settled(ballooned) && now->available >= reserve(now) &&
		(now->unclaimed >= reserve(now) || (rates.refaults <= FEW_REFAULTS && rates.swapping <= 0));
	last = *now;
	have_last = true;
}

/*
 * What the law must see, after dt seconds; while the law has nothing to do (calm) a glance may be enough. Returns false while there
 * is nothing to compare with; then only the pool is known.
 */
bool
balloon_look(double dt, bool calm, BalloonView *view, SignalReading *now)
{
	BalloonReport reported;
	int64		read_back = pg_atomic_read_u64(&balloon->read_back);
	uint64		hand = clock_hand();
	bool		first = !have_last;
	bool		had_peace = peace;
	bool		may_glance;
	bool		seen;

	LWLockAcquire(balloon->lock, LW_SHARED);
	view->ballooned = balloon->nballooned;
	LWLockRelease(balloon->lock);

	since_sample += dt;
	since_look += dt;
	seen = have_signals(dt);
	may_glance = calm && peace && settled(view->ballooned);
	glanced = seen && may_glance && glance(since_look, hand, now);
	if (seen && !glanced && !signals_read(&reader, may_glance, now))
	{
		balloon_look_end();
		seen = false;
	}
	if (seen && !glanced)
		compare(since_look, dt, view->ballooned, now);
	if (!glanced)
		since_look = 0;
	look_at_pool(dt, had_peace && !peace, hand, read_back, view);
	if (!seen)
		return false;
	safe = (now->reachable - reserve(now)) / fastest;

	see_misses(dt, hand, read_back, view);
	balloon_report_read(&reported);
	view->miss_cost = reported.miss_cost > 0 ? reported.miss_cost : -1;

	view->waiting = balloon_waiting();
	view->limit = now->limit;
	view->available = now->available;
	view->reachable = now->reachable;
	view->unclaimed = now->unclaimed;
	view->refaults = rates.refaults;
	view->own_refaults = rates.own_refaults;
	view->swapping = rates.swapping;
	view->stall = rates.stall;
	return !first;
}
