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
#include "controller_constants.h"

#include <math.h>

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
 * Safety: deflate what must return at once, with or without controller.
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
 *	need = misses * cost of a miss
 *	short = available < high_watermark, or refaulted > REFAULTED, or
 *			swapping > SWAPPING, the latter two only if memory is claimed
 *	making room = the limit fell by FALL, and less than MADE_ROOM has passed since
 *			available was at high_watermark, and the balloon is not at its maximum
 *
 * Need, waiting sessions and refaults are smoothed.
 */
static void
update_state(Step *step, BalloonControllerState *state)
{
	const BalloonInput *input = step->input;
	int64_t		high_watermark = step->limits->high_watermark;
	double		dt = input->dt;
	double		untouched = 1.0 - IDLE_MARGIN * input->hot;
	bool		full = input->unclaimed < high_watermark;
	bool		fell;

	step->live = input->pool - input->ballooned;
	step->used = greater(0, step->live - input->unused);
	step->idle = untouched > 0 ? (int64_t) ((double) step->used * untouched) : 0;
	step->room = balloon_inflatable(input);
	step->swapping = full ? input->swapping : 0;
	step->starved = (double) input->unused <= FREE_TIME * input->filled;

	smooth(&state->waiting, input->waiting, dt, SMOOTHING);
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
	smooth(&state->refaulted, full ? bytes_refaulted(input->refaults, input) : 0, dt, SMOOTHING);
	smooth(&state->own_refaulted, bytes_refaulted(input->own_refaults, input), dt, SMOOTHING);
	step->is_short = input->available < high_watermark ||
		state->refaulted > REFAULTED || step->swapping > SWAPPING;
	state->shortage_s = step->is_short ? state->shortage_s + dt : 0;
	state->limit_fallen = state->limit_fallen * exp(-dt / FALL_DECAY) + (double) input->limit_fall;
	fell = state->limit_fallen > FALL * (double) input->limit;
	state->limit_fallen = fell ? 0 : state->limit_fallen;
	state->falls_again = state->making_room_s > 0 && (state->falls_again || fell);
	if (fell)
	{
		state->making_room_s = MADE_ROOM;
		state->room_made = false;
	}
	else
	{
		state->room_made = state->making_room_s > 0 &&
			(state->room_made || input->available >= high_watermark);
		if (state->room_made)
			state->making_room_s = fmax(0, state->making_room_s - dt);
	}
	if (max_balloon(input) <= input->ballooned)
		state->making_room_s = 0;
	state->exhausted_s = input->available < step->limits->low_watermark / 2
		? state->exhausted_s + dt : 0;
}

/* Keep the pool from growing for that many seconds at least. */
static void
hold_growth(BalloonControllerState *state, double seconds)
{
	state->hold_s = fmax(state->hold_s, seconds);
}

/*
 * Inflate idle pages in a shortage. Returns false if the pool has none to give.
 *
 *	min(max_step, high_watermark - available + LEAST_STEP, idle, room)
 *
 * With more than the high watermark available, the second term is the debt:
 *	debt += dt * (refaulted + swapping) * SWAP_DEBT_SHARE
 *
 * A needy server gives nothing. A pool of which hardly any page is accessed is
 * certainly idle, and needs no quiet time. Others, and those needy after an
 * inflate (extra_quiet_s), do.
 */
static bool
inflate_idle(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		high_watermark = step->limits->high_watermark;
	int64_t		want;

	if (!step->is_short || step->needy || step->idle <= 0 ||
		state->idle_s < QUIET * fmin(1.0, input->hot / TOUCHED) + state->extra_quiet_s)
		return false;

	/*
	 * Inflate at most what is missing. With enough memory available, pages that
	 * refault or are swapped may belong to files that are read once, so only a
	 * share is inflated, because inflated pages must be read from disk again.
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

		state->swap_debt = fmin(state->swap_debt + rate * input->dt, rate);	/* at most a second's */
		want = smaller(want, (int64_t) state->swap_debt);
	}
	want = smaller(smaller(want, step->idle), step->room);
	if (input->available >= high_watermark && want < buffers_in(TRICKLE, input))
		set_decision(decision, BALLOON_HOLD, BALLOON_REASON_STEADY, 0);
	else if (want > 0)
	{
		decision->write = state->shortage_s > WRITE_AFTER;
		hold_growth(state, HOLD_IDLE);
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
 *	min(dt * own_refaulted * min(1 + shortage_s, SWAPPED_SHARE_MOST),
 *		used * SWAPPED_MOST, room)
 *
 * Without room it is not kept from growing: it has just become busy.
 */
static bool
inflate_swapped(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	double		share = fmin(1.0 + state->shortage_s, SWAPPED_SHARE_MOST);
	int64_t		came_back = buffers_in(state->own_refaulted * share * input->dt, input);
	int64_t		want;

	if (!step->is_short || input->available >= step->limits->low_watermark ||
		state->own_refaulted <= REFAULTED || step->room <= 0)
		return false;

	want = smaller(smaller(came_back, (int64_t) (SWAPPED_MOST * (double) step->used)), step->room);
	if (want <= 0)
		return false;
	hold_growth(state, HOLD_BUSY);
	set_decision(decision, BALLOON_INFLATE, BALLOON_REASON_POOL_SWAPPED, want);
	return true;
}

/*
 * Inflate a busy pool because the limit was lowered, after servers with idle
 * pages had WRITE_AFTER for theirs. A limit that falls further does not wait
 * again. Returns false if it was not lowered, or if no buffer may be inflated
 * now.
 *
 *	min(max_step, high_watermark - available, room)
 *
 * Once that room was made, only the low watermark is kept: another busy server
 * below the limit may have stopped to make room, and takes the rest.
 */
static bool
inflate_for_lower_limit(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		kept = state->room_made ? step->limits->low_watermark : step->limits->high_watermark;
	int64_t		missing = kept - input->available;
	double		lasted = state->shortage_s + (state->falls_again ? WRITE_AFTER : 0);
	int64_t		most = max_step(step->limits->max_inflate_rate, lasted, input);

	if (state->making_room_s <= 0 || missing <= 0 || lasted <= WRITE_AFTER ||
		step->room <= 0)
		return false;
	hold_growth(state, HOLD_BUSY);
	decision->write = true;
	set_decision(decision, BALLOON_INFLATE, BALLOON_REASON_LIMIT_FELL,
				 smaller(smaller(most, missing / input->block + 1), step->room));
	return true;
}

/*
 * Inflate slowly while memory is exhausted, each second. Returns false if it
 * is not.
 *
 *	min(low_watermark - available, used * EXHAUSTED_SHARE, room)
 */
static bool
inflate_exhausted(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		low_watermark = step->limits->low_watermark;
	int64_t		missing;
	int64_t		want;

	if (state->exhausted_s <= EXHAUSTED)
		return false;

	missing = (low_watermark - input->available) / input->block;
	want = smaller(smaller(missing, (int64_t) (EXHAUSTED_SHARE * (double) step->used) + 1),
				   step->room);
	state->exhausted_s = EXHAUSTED - 1.0;
	hold_growth(state, HOLD_BUSY);
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
 *	min(misses * FREE_TIME - unused, ballooned)
 *
 * Pages beyond that would be idle, too, and not worth a shortage of others.
 * Unused buffers that several servers took in advance would be the next
 * shortage, and move back at once.
 */
static void
deflate_missed(const Step *step, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;
	int64_t		spare = (input->reachable_high - step->limits->high_watermark) / 2 / input->block;
	int64_t		missed = (int64_t) (input->misses * FREE_TIME) + 1 - input->unused;

	missed = smaller(missed, input->ballooned);
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
 *
 * While room is made for a lower limit, the high watermark is left, because
 * what is taken below it would be inflated again, if anything can be.
 */
static void
deflate_needed(const Step *step, BalloonControllerState *state, BalloonDecision *decision)
{
	const BalloonInput *input = step->input;

	/* Unused buffers have left the balloon already, and will need memory, too. */
	int64_t		above = state->making_room_s > 0 && step->room > 0
		? input->reachable_high - step->limits->high_watermark
		: input->reachable - step->limits->low_watermark;
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
		inflate_for_lower_limit(&step, state, decision) ||
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
