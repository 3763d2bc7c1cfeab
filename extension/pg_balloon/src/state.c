/*
 * state.c
 *		The balloon in shared memory; see state.h for its rules.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"

#include "state.h"

BalloonShared *balloon = NULL;

Size
balloon_state_size(void)
{
	return add_size(offsetof(BalloonShared, bits), (NBuffers + 7) / 8);
}

/* Find it, or make it with nothing in the balloon. The caller holds AddinShmemInitLock. Returns true if it is new. */
bool
balloon_state_attach(LWLock *lock)
{
	bool		found;

	balloon = ShmemInitStruct("pg_balloon", balloon_state_size(), &found);
	if (found)
		return false;
	memset(balloon, 0, balloon_state_size());
	balloon->lock = lock;
	pg_atomic_init_u32(&balloon->clients, 0);
	pg_atomic_init_u64(&balloon->read_back, 0);
	balloon->counters.reset = GetCurrentTimestamp();
	return true;
}
