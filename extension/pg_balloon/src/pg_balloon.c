/*
 * pg_balloon.c
 *		Loading: parameters, shared memory, workers.
 *
 * Only this file knows all others. Each of them documents its shared memory
 * and the lock that protects it. No process ever holds two of the three locks.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "actuator.h"
#include "compat.h"
#include "ghosts.h"
#include "guc.h"
#include "pool_limits.h"
#include "shared_state.h"
#include "worker.h"

BALLOON_MODULE_MAGIC;

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
	balloon_register_worker();
}
