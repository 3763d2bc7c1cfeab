/*
 * controller.c
 *		Control algorithm of one server's balloon. DESIGN.md has a diagram.
 *
 * Each step checks four groups of rules in order: safety, shortage, need,
 * idleness. The first rule that applies decides. Each rule is one function with
 * its equation. Equations are in buffers, where bytes are divided by the size
 * of a buffer.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "controller.h"

#include <math.h>

/*
 * Constants. Times are in seconds. The watermarks' defaults were chosen by
 * measurement, see DESIGN.md; the constants below were chosen by reasoning and
 * checked by simulation (tests/extension/test_controller_simulated.py).
 */

/* Time constant of the need. */
#define SMOOTHING 0.3
/* Need: seconds lost to misses per second. */
#define NEED 0.02
/* Share of used pages accessed within idle_after; below it the pool counts as idle. */
#define TOUCHED 0.3
/* Waiting sessions that show a need, even if their waits keep the pool from looking hot. */
#define WAITING 1.5
/* Time constant of the number of waiting sessions. */
#define WAITING_SMOOTHING 1.0
/* Cost of a miss while unknown: a read from a solid-state disk. */
#define DEFAULT_MISS_COST 2e-4
/* Lower bound: a read from the operating system's page cache. */
#define LEAST_MISS_COST 5e-6
/* Upper bound: a seek of a hard disk. */
#define MOST_MISS_COST 2e-2
/* Misses per second from which on waits are attributed to misses. */
#define MISSES 20.0
/* Bytes refaulted per second that show a shortage if no memory is unclaimed. */
#define REFAULTED (300.0 * 4096)
/* Time constant of refaults, so that a burst within one tick does not count. */
#define REFAULT_SMOOTHING 0.5
/* Bytes swapped out per second that show a shortage. */
#define SWAPPING (4.0 * 1024 * 1024)
/* Share of the refaulted and swapped volume to inflate while the high watermark is kept. */
#define SWAP_DEBT_SHARE (1.0 / 8)
/* Factor by which the working set may be larger than estimated. */
#define IDLE_MARGIN 1.1
/* Share of used pages; with fewer idle ones nothing is inflated. */
#define LEAST_IDLE 0.01
/* Time without need before idle pages may leave; shorter if hot is below TOUCHED. */
#define QUIET 0.4
/* If need follows an inflate within this time, the server was too quick ... */
#define REGRET 3.0
/* ... and the extra quiet time is doubled and grows by this ... */
#define REGRETTED 0.1
/* ... up to this maximum. */
#define QUIET_MOST 30.0
/* Time constant with which the extra quiet time decays. */
#define QUIET_DECAY 60.0
/* Time without need before dirty pages are written ahead of time. */
#define WRITEBACK_AFTER 2.0
/* Time of shortage before an inflate may write dirty pages. */
#define WRITE_AFTER 0.2
/* Time in which the rates double. */
#define RAMP 0.1
/* Initial share of the maximum rate. */
#define RAMP_START (1.0 / 16)
/* Time constant of own refaults, because pages return from swap in bursts. */
#define SWAP_SMOOTHING 0.1
/* Multiple of the own volume that returned from swap to inflate; grows by this each second. */
#define SWAPPED_SHARE 1.0
/* Maximum of that multiple. */
#define SWAPPED_SHARE_MOST 8.0
/* Bytes per second to inflate in addition. */
#define SWAPPED_LEAST (5.0 * 1024 * 1024)
/* Maximum share of the used pages per decision. */
#define SWAPPED_MOST (1.0 / 8)
/* Time with less than half of the low watermark before busy servers inflate. */
#define EXHAUSTED 2.0
/* Share of the used pages that they then inflate each second. */
#define EXHAUSTED_SHARE (1.0 / 64)
/* Weight of time while pages of other servers return from swap. */
#define EXHAUSTED_PATIENCE 0.25
/* Time after which the weight is 1, because the other server has nothing left to inflate. */
#define EXHAUSTED_LONG 10.0
/* Time without growth after an inflate because of swapping or exhaustion. */
#define HOLD_SWAPPED 1.0
/* Time without growth after an inflate of idle pages. */
#define HOLD_IDLE 0.3
/* Share of pinned buffers above which buffers return. */
#define PINNED 0.5
/* Maximum share of pinned buffers after an inflate; half of PINNED, because as many return. */
#define PINNED_LEAVES 0.25
/* Used share of the pool below which the pool is still filling. */
#define NOT_FULL (1.0 / 20)
/* Share of unused buffers above which the server needs no more buffers. */
#define FREE (1.0 / 50)
/* The same as a time: unused buffers last this long. */
#define FREE_TIME 0.5
/* Share of the memory above the low watermark to take, because others may take some, too. */
#define SPARE 0.75
/* Minimum number of bytes to move for a weak reason. */
#define TRICKLE (128.0 * 1024)
/* Time for which the swap debt accumulates. */
#define SWAP_DEBT_SECONDS 1.0
/* Minimum number of bytes per decision, unless the rate or the rest is smaller. */
#define LEAST_STEP (2.0 * 1024 * 1024)

/* Values of one step that several of its parts use. Buffers as a count. */
typedef struct Step
{
	const BalloonLimits *limits;
	const BalloonInput *input;
	int64_t		live;			/* buffers outside the balloon */
	int64_t		used;			/* buffers outside the balloon that hold memory */
	int64_t		idle;			/* used buffers that are idle */
	int64_t		room;			/* buffers that may be inflated */
	double		swapping;		/* bytes per second; 0 while memory is unclaimed */
	bool		is_short;		/* memory is short */
	bool		starved;		/* few unused buffers are left */
	bool		missing;		/* misses cost time */
	bool		needy;			/* ... and what they bring in will be used */
} Step;

static int64_t
smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
greater(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Return the number of whole buffers in that many bytes. */
static int64_t
buffers_in(double bytes, const BalloonInput *input)
{
	return (int64_t) (bytes / (double) input->block);
}

/* Return the buffers per tick at a rate in bytes per second; at most one second's worth. */
static double
buffers_per_tick(int64_t rate, const BalloonInput *input)
{
	return (double) rate * (input->dt < 1.0 ? input->dt : 1.0) / (double) input->block;
}

/*
 * Return the maximum buffers of a tick, with a rate that rises with the
 * duration of the reason (lasted):
 *
 *	rate * dt * min(1, 2^(lasted / RAMP) * RAMP_START)
 */
static int64_t
max_step(int64_t rate, double lasted, const BalloonInput *input)
{
	double		share = RAMP_START * pow(2.0, lasted / RAMP);
	double		most = buffers_per_tick(rate, input);

	return greater(1, (int64_t) fmax(fmin((double) buffers_in(LEAST_STEP, input), most),
								 most * fmin(1.0, share)));
}

/* Store action, reason and size of a decision. */
static void
set_decision(BalloonDecision *decision, int action, int reason, int64_t buffers)
{
	decision->action = action;
	decision->reason = reason;
	decision->buffers = buffers;
}

/*
 * Return the seconds that a miss costs:
 *
 *	max(miss_cost, waiting / misses)
 *
 * An unknown miss_cost is replaced by stall / misses, or by a default. A known
 * one dates from the last prefetch and may have hit the page cache.
 */
static double
cost_of_a_miss(const BalloonInput *input, double waiting)
{
	double		cost = DEFAULT_MISS_COST;

	if (input->miss_cost >= 0)
		cost = input->miss_cost;
	else if (input->stall >= 0 && input->misses >= 1)
		cost = input->stall / input->misses;
	if (input->misses >= MISSES)
		cost = fmax(cost, waiting / input->misses);
	if (cost < LEAST_MISS_COST)
		return LEAST_MISS_COST;
	return cost > MOST_MISS_COST ? MOST_MISS_COST : cost;
}

/* Return the maximum size of the balloon in buffers, by floor and ceiling. */
static int64_t
max_balloon(const BalloonInput *input)
{
	return greater(0, smaller(input->pool - input->floor, input->ceiling));
}

/*
 * Return how many buffers may be inflated now, by floor, ceiling and pins:
 *
 *	min(min(pool - floor, ceiling) - ballooned,
 *		live * (1 - pinned / PINNED_LEAVES))
 */
int64_t
balloon_inflatable(const BalloonInput *input)
{
	int64_t		live = input->pool - input->ballooned;
	int64_t		by_pins = (int64_t) ((double) live * (1.0 - input->pinned / PINNED_LEAVES));

	return greater(0, smaller(max_balloon(input) - input->ballooned, by_pins));
}

/*
 * Safety: deflate what must return at once, with or without the controller.
 *	beyond floor or ceiling:	ballooned - min(pool - floor, ceiling)
 *	pinned > PINNED:			live, so that half as many are pinned
 *
 * Returns false, with a decision to hold, if nothing must.
 */
bool
balloon_safety(const BalloonInput *input, BalloonDecision *decision)
{
	int64_t		live = input->pool - input->ballooned;

	decision->write = false;
	decision->prefetch = false;
	set_decision(decision, BALLOON_HOLD, BALLOON_REASON_STEADY, 0);
	if (input->ballooned > max_balloon(input))
		set_decision(decision, BALLOON_DEFLATE,
					 live < input->floor ? BALLOON_REASON_FLOOR : BALLOON_REASON_CEILING,
					 input->ballooned - max_balloon(input));
	else if (input->pinned > PINNED && input->ballooned > 0)
		set_decision(decision, BALLOON_DEFLATE, BALLOON_REASON_PINNED,
					 smaller(input->ballooned, greater(live, buffers_in(LEAST_STEP, input))));
	return decision->action != BALLOON_HOLD;
}

/* Move *value toward a reading, dt seconds after the last one. */
static void
smooth(double *value, double reading, double dt, double time_constant)
{
	*value += (1.0 - exp(-dt / time_constant)) * (reading - *value);
}

/* Return the bytes per second of a rate of refaults; 0 if it is unknown. */
static double
bytes_refaulted(double refaults, const BalloonInput *input)
{
	return refaults > 0 ? refaults * (double) input->page : 0;
}

/*
 * Update the state with the input, and derive the step's values:
 *
 *	idle = used * (1 - IDLE_MARGIN * hot)
 *	need = misses * cost of a miss, smoothed over SMOOTHING
 *	short = available < high_watermark, or refaulted > REFAULTED, or
 *			swapping > SWAPPING, the latter two only if memory is claimed
 */
static void
update_state(Step *step, BalloonControllerState *state)
{
	const BalloonInput *input = step->input;
	int64_t		high_watermark = step->limits->high_watermark;
	double		dt = input->dt;
	double		untouched = 1.0 - IDLE_MARGIN * input->hot;
	bool		full = input->unclaimed < high_watermark;

	step->live = input->pool - input->ballooned;
	step->used = greater(0, step->live - input->unused);
	step->idle = untouched > 0 ? (int64_t) ((double) step->used * untouched) : 0;
	step->room = balloon_inflatable(input);
	step->swapping = full ? input->swapping : 0;
	step->starved = (double) input->unused <= FREE * (double) step->live ||
		(double) input->unused <= FREE_TIME * input->filled;

	smooth(&state->waiting, input->waiting, dt, WAITING_SMOOTHING);
	smooth(&state->need, input->misses * cost_of_a_miss(input, state->waiting), dt, SMOOTHING);
	step->missing = state->need > NEED || state->waiting >= WAITING;
	step->needy = step->missing && (input->hot >= TOUCHED || state->waiting >= WAITING);
	state->need_s = step->needy ? state->need_s + dt : 0;
	state->idle_s = step->needy ? 0 : state->idle_s + dt;
	state->hold_s = state->hold_s > dt ? state->hold_s - dt : 0;
	state->since_inflated_s += dt;
	state->extra_quiet_s *= exp(-dt / QUIET_DECAY);

	/*
	 * While memory is unclaimed, refaults show no shortage here: they happen in
	 * cgroups whose own limits are short.
	 */
	smooth(&state->refaulted, full ? bytes_refaulted(input->refaults, input) : 0, dt,
		   REFAULT_SMOOTHING);
	smooth(&state->own_refaulted, bytes_refaulted(input->own_refaults, input), dt,
		   SWAP_SMOOTHING);
	step->is_short = input->available < high_watermark ||
		state->refaulted > REFAULTED || step->swapping > SWAPPING;
	state->shortage_s = step->is_short ? state->shortage_s + dt : 0;
}

/*
 * Inflate idle pages in a shortage. Returns false if the pool has none to give.
 *
 *	min(max_step, high_watermark - available + LEAST_STEP, idle, room)
 *
 * With more than the high watermark available, the second term is the debt:
 *	debt += dt * (refaulted + swapping) * SWAP_DEBT_SHARE
 *
 * A pool of which hardly any page is accessed is idle for certain, so it needs
 * no quiet time. If a part is accessed, need may return soon. The same holds
 * for any pool that was needy after a recent inflate (extra_quiet_s).
 */
static bool
inflate_idle(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		high_watermark = step->limits->high_watermark;
	bool		worthwhile = step->idle > 0 &&
		(double) step->idle >= LEAST_IDLE * (double) step->used;
	int64_t		want;

	if (!step->is_short || !worthwhile ||
		state->idle_s < QUIET * fmin(1.0, input->hot / TOUCHED) + state->extra_quiet_s)
		return false;

	/*
	 * Inflate at most what is missing. With enough memory available, pages can
	 * still refault or be swapped, but they may belong to files that are read
	 * once. Then only a share of their volume is inflated, because inflated
	 * pages must be read from disk again.
	 */
	want = max_step(step->limits->max_inflate_rate, state->shortage_s, input);
	if (input->available < high_watermark)
	{
		state->swap_debt = 0;
		want = smaller(want, (high_watermark - input->available) / input->block +
					   buffers_in(LEAST_STEP, input));
	}
	else
	{
		double		bytes = state->refaulted + step->swapping;
		double		rate = bytes * SWAP_DEBT_SHARE / (double) input->block;

		state->swap_debt = fmin(state->swap_debt + rate * input->dt, rate * SWAP_DEBT_SECONDS);
		want = smaller(want, (int64_t) state->swap_debt);
	}
	want = smaller(smaller(want, step->idle), step->room);
	if (input->available >= high_watermark && want < buffers_in(TRICKLE, input))
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_STEADY, 0);
	else if (want > 0)
	{
		decision->write = state->shortage_s > WRITE_AFTER;
		state->hold_s = HOLD_IDLE > state->hold_s ? HOLD_IDLE : state->hold_s;
		state->since_inflated_s = 0;
		state->inflated_idle = true;
		state->swap_debt = fmax(0, state->swap_debt - (double) want);
		set_decision(decision, BALLOON_INFLATE, BALLOON_REASON_IDLE, want);
	}
	else
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_AT_LIMIT, 0);
	return true;
}

/*
 * Inflate a pool that is itself being swapped. Returns false if it is not.
 *
 *	min(dt * (own_refaulted * min(1 + shortage_s, 8) + SWAPPED_LEAST),
 *		used * SWAPPED_MOST, room)
 *
 * A server without room to inflate is not kept from growing: its pages return
 * from swap because it has just become busy.
 */
static bool
inflate_swapped(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	double		share;
	int64_t		came_back;
	int64_t		want;

	if (!step->is_short || input->available >= step->limits->low_watermark ||
		state->own_refaulted <= REFAULTED || step->room <= 0)
		return false;

	share = SWAPPED_SHARE * (1.0 + state->shortage_s);
	if (share > SWAPPED_SHARE_MOST)
		share = SWAPPED_SHARE_MOST;
	came_back = buffers_in((state->own_refaulted * share + SWAPPED_LEAST) * input->dt, input);
	want = smaller(smaller(came_back, (int64_t) (SWAPPED_MOST * (double) step->used)), step->room);
	if (want <= 0)
		return false;
	state->hold_s = HOLD_SWAPPED;
	set_decision(decision, BALLOON_INFLATE, BALLOON_REASON_POOL_SWAPPED, want);
	return true;
}

/*
 * Inflate slowly while memory is exhausted, each second. Returns false if it
 * is not.
 *
 *	min(low_watermark - available, used * EXHAUSTED_SHARE, room)
 *
 * If another server's pages return from swap, that server inflates first, so
 * time counts less here. It counts fully after EXHAUSTED_LONG, because that
 * server may have reached its floor.
 */
static bool
inflate_exhausted(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		low_watermark = step->limits->low_watermark;
	int64_t		missing;
	int64_t		want;

	if (input->available >= low_watermark / 2)
		state->exhausted_weighted_s = state->exhausted_s = 0;
	else
	{
		state->exhausted_s += input->dt;
		state->exhausted_weighted_s +=
			state->refaulted <= REFAULTED || state->exhausted_s > EXHAUSTED_LONG
			? input->dt : input->dt * EXHAUSTED_PATIENCE;
	}
	if (state->exhausted_weighted_s <= EXHAUSTED)
		return false;

	missing = (low_watermark - input->available) / input->block;
	want = smaller(smaller(missing, (int64_t) (EXHAUSTED_SHARE * (double) step->used) + 1),
				   step->room);
	state->exhausted_weighted_s -= 1.0;
	state->hold_s = HOLD_SWAPPED;
	if (want > 0)
	{
		decision->write = true;
		set_decision(decision, BALLOON_INFLATE, BALLOON_REASON_EXHAUSTED, want);
	}
	else
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_AT_LIMIT, 0);
	return true;
}

/*
 * Deflate by what an idle server misses, if half of what is above the high
 * watermark is enough for it:
 *
 *	min(misses * FREE_TIME, ballooned)
 *
 * Pages that it would read back beyond
 * that would be idle, too, and are not worth a shortage of other servers.
 */
static void
deflate_missed(const Step *step, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		spare = (input->reachable - step->limits->high_watermark) / 2 / input->block;
	int64_t		missed = smaller((int64_t) (input->misses * FREE_TIME) + 1, input->ballooned);

	if (missed < buffers_in(TRICKLE, input))
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_STEADY, 0);
	else if (step->is_short || spare < missed)
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_NO_MEMORY, 0);
	else
		set_decision(decision, BALLOON_DEFLATE, BALLOON_REASON_MISSES, missed);
}

/*
 * Deflate a needy server, as far as memory is available and growth is not on
 * hold:
 *
 *	min(max_step, SPARE * (reachable - low_watermark) - unused, ballooned)
 */
static void
deflate_needed(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;

	/* Unused buffers have left the balloon already, and will need memory, too. */
	int64_t		above = input->reachable - step->limits->low_watermark;
	int64_t		spare = (int64_t) (SPARE * (double) above) / input->block - input->unused;

	/* An inflate was premature even if no memory is left to take now. */
	if (state->inflated_idle && state->since_inflated_s < REGRET)
	{
		state->extra_quiet_s = 2 * state->extra_quiet_s + REGRETTED;
		if (state->extra_quiet_s > QUIET_MOST)
			state->extra_quiet_s = QUIET_MOST;
	}
	state->inflated_idle = false;
	if (state->hold_s > 0)
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_ON_HOLD, 0);
	else if (spare < smaller(buffers_in(LEAST_STEP, input), input->ballooned))
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_NO_MEMORY, 0);
	else
	{
		int64_t		most = max_step(step->limits->max_deflate_rate, state->need_s, input);

		decision->prefetch = true;
		set_decision(decision, BALLOON_DEFLATE, BALLOON_REASON_MISSES,
					 smaller(smaller(most, spare), input->ballooned));
	}
}

/*
 * Write dirty pages of an idle server ahead of time. Returns false if there is
 * no reason to.
 *
 *	min(max_writeback_rate * dt, min(idle, high_watermark) - clean)
 *
 * A busy server would dirty them again, and pages under writeback take memory.
 * One inflate takes at most the high watermark, and the next dirty pages are
 * written while those clean ones are inflated.
 */
static bool
write_ahead(const Step *step, const BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonLimits *limits = step->limits;
	const BalloonInput *input = step->input;
	int64_t		clean;
	int64_t		enough;
	int64_t		rate;

	if (state->idle_s < WRITEBACK_AFTER || input->hot >= TOUCHED ||
		limits->max_writeback_rate <= 0)
		return false;
	/* This assumes that all dirty pages are idle. */
	clean = step->idle - (int64_t) (input->dirty * (double) step->used);
	enough = smaller(step->idle, limits->high_watermark / input->block);
	if (enough - clean < buffers_in(TRICKLE, input))
		return false;
	rate = greater(1, (int64_t) buffers_per_tick(limits->max_writeback_rate, input));
	set_decision(decision, BALLOON_WRITEBACK, BALLOON_REASON_WRITEBACK,
				 smaller(rate, enough - clean));
	return true;
}

/* Decide what to do in a tick, and update the state. */
void
balloon_controller_step(const BalloonLimits *limits, const BalloonInput *input,
						BalloonControllerState *state, BalloonDecision *decision)
{
	Step		step = {.limits = limits, .input = input};

	update_state(&step, state);
	if (balloon_safety(input, decision))
		return;

	/* A pool that is still filling holds little memory, and its working set is unknown. */
	if ((double) step.used < NOT_FULL * (double) input->pool && input->ballooned == 0)
	{
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_POOL_NOT_FULL, 0);
		return;
	}
	if (inflate_idle(&step, state, decision) ||
		inflate_swapped(&step, state, decision) ||
		inflate_exhausted(&step, state, decision))
		return;
	if (step.missing && !step.needy && step.starved && input->ballooned > 0)
		deflate_missed(&step, decision);
	else if (step.needy && step.starved && input->ballooned > 0)
		deflate_needed(&step, state, decision);
	else if (!write_ahead(&step, state, decision))
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_STEADY, 0);
}

/* Texts of the reasons. */
static const char *const reason_texts[] = {
	[BALLOON_REASON_STEADY] = "nothing to do",
	[BALLOON_REASON_POOL_NOT_FULL] = "the pool is still filling",
	[BALLOON_REASON_FLOOR] = "the pool was below its floor",
	[BALLOON_REASON_PINNED] = "too many of the remaining buffers are pinned",
	[BALLOON_REASON_IDLE] = "memory is short, and part of this pool is idle",
	[BALLOON_REASON_POOL_SWAPPED] = "pages of this pool are being swapped",
	[BALLOON_REASON_EXHAUSTED] = "memory is exhausted",
	[BALLOON_REASON_MISSES] = "miss cost is high, and memory is available",
	[BALLOON_REASON_NO_MEMORY] = "miss cost is high, but no memory is available",
	[BALLOON_REASON_ON_HOLD] = "miss cost is high, but growth is on hold after a recent inflate",
	[BALLOON_REASON_WRITEBACK] = "the server is idle, and dirty pages are written ahead of time",
	[BALLOON_REASON_AT_LIMIT] = "memory is short, but floor, ceiling or pinned buffers allow no more",
	[BALLOON_REASON_TARGET] = "pg_balloon.target",
	[BALLOON_REASON_SWITCHED_OFF] = "pg_balloon.enabled was switched off",
	[BALLOON_REASON_REFUSED] = "the operating system did not take memory back",
	[BALLOON_REASON_CEILING] = "the balloon was above its ceiling"
};

/* Return the text of a reason. */
const char *
balloon_reason_text(int reason)
{
	return reason_texts[reason];
}
