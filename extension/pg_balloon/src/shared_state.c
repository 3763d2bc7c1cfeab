/*
 * shared_state.c
 *		Shared memory: which buffers are in the balloon, counters, and the
 *		last decision.
 *
 * The last decision has a separate lock, always taken alone. A process that
 * holds it waits for nothing.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"

#include "shared_state.h"

BalloonShared *balloon = NULL;

/* Return the size of BalloonShared. */
Size
balloon_state_size(void)
{
	return add_size(offsetof(BalloonShared, bits), (NBuffers + 7) / 8);
}

/*
 * Attach to the shared memory, or create it with an empty balloon. The caller
 * holds AddinShmemInitLock. Returns true if it is new.
 */
bool
balloon_state_attach(LWLock *lock)
{
	bool		found;

	balloon = ShmemInitStruct("pg_balloon", balloon_state_size(), &found);
	if (found)
		return false;
	memset(balloon, 0, balloon_state_size());
	balloon->lock = lock;
	pg_atomic_init_u32(&balloon->sessions, 0);
	pg_atomic_init_u64(&balloon->read_back, 0);
	balloon->counters.reset = GetCurrentTimestamp();
	return true;
}

#define SMOOTHING 0.2			/* weight of the newest reading in the cost of a miss */

typedef struct SharedLastDecision
{
	LWLock	   *lock;			/* protects tick */
	BalloonLastDecision tick;
} SharedLastDecision;

static SharedLastDecision *shared = NULL;

/* Return the size of SharedLastDecision. */
Size
balloon_last_decision_size(void)
{
	return sizeof(SharedLastDecision);
}

/*
 * Attach to the last decision, or create it empty. The caller holds
 * AddinShmemInitLock.
 */
void
balloon_last_decision_attach(LWLock *lock)
{
	bool		found;

	shared = ShmemInitStruct("pg_balloon last decision", sizeof(SharedLastDecision), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(SharedLastDecision));
	shared->lock = lock;
}

/* Copy the last decision. */
void
balloon_last_decision_read(BalloonLastDecision *tick)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	*tick = shared->tick;
	LWLockRelease(shared->lock);
}

/*
 * Store the input of a tick and its source (NULL: none), the decision, and how
 * many buffers that moved or wrote.
 */
void
balloon_last_decision_tick(const BalloonInput *input, int source, const char *cgroup_path,
						   const BalloonDecision *decision, int64 buffers)
{
	BalloonLastDecision *tick = &shared->tick;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	tick->observed = input != NULL;
	if (input != NULL)
	{
		tick->input = *input;
		tick->source = source;
		if (cgroup_path != NULL)
			strlcpy(tick->cgroup_path, cgroup_path, BALLOON_PATH);
	}
	tick->reason = decision->reason;
	if (buffers > 0)
	{
		tick->decision = *decision;
		tick->buffers = buffers;
		tick->decided_at = GetCurrentTimestamp();
	}
	LWLockRelease(shared->lock);
}

/*
 * Store the worker's process ID, 0 when it exits, and discard its
 * predecessor's input.
 */
void
balloon_last_decision_worker(pid_t worker_pid)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->tick.worker_pid = worker_pid;
	shared->tick.observed = false;
	shared->tick.reason = BALLOON_REASON_STEADY;
	LWLockRelease(shared->lock);
}

/* Update the cost of a miss with the time of one page that was read alone. */
void
balloon_last_decision_miss(double seconds)
{
	double	   *cost = &shared->tick.miss_cost;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	*cost = *cost <= 0 ? seconds : *cost + SMOOTHING * (seconds - *cost);
	LWLockRelease(shared->lock);
}
