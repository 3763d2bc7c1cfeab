/*
 * pg_balloon.c
 *		Loading: settings, shared memory, workers.
 *
 * The only file that knows all the others; what each of them keeps in shared
 * memory, and under which lock, is stated in it. No two of the three locks are ever held together.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "clients.h"
#include "compat.h"
#include "ghosts.h"
#include "pool_memory.h"
#include "report.h"
#include "settings.h"
#include "state.h"
#include "worker.h"

BALLOON_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type previous_request = NULL;
static shmem_startup_hook_type previous_startup = NULL;

static void
request(void)
{
	if (previous_request)
		previous_request();
	RequestAddinShmemSpace(MAXALIGN(balloon_state_size()));
	RequestAddinShmemSpace(MAXALIGN(balloon_ghosts_size()));
	RequestAddinShmemSpace(MAXALIGN(balloon_report_size()));
	RequestAddinShmemSpace(balloon_probe_size());
	RequestNamedLWLockTranche("pg_balloon", 3);
}

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
	balloon_ghosts_attach(&locks[1].lock);
	balloon_report_attach(&locks[2].lock);
	if (balloon_state_attach(&locks[0].lock))
	{
		balloon->usable = balloon_can_punch(probe, balloon->why_not, BALLOON_TEXT);
		if (!balloon->usable)
			ereport(WARNING,
					(errmsg("pg_balloon cannot be used on this server"),
					 errdetail("%s", balloon->why_not)));
	}
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	/* Without the settings CREATE EXTENSION would still work; the functions then say what to do. */
	if (!process_shared_preload_libraries_in_progress)
		return;
	balloon_define_settings();
	previous_request = shmem_request_hook;
	shmem_request_hook = request;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
	balloon_watch_clients();
	balloon_register_worker();
}
