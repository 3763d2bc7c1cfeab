/*
 * clients.c
 *		Sessions of clients are counted, since each raises the floor (floors.c).
 *
 * A session counts itself once it is let in, and until it leaves: BalloonShared.clients
 * is the number of those that are between the two. It is raised before
 * the session looks at the balloon, and inflate_chunk() reads the floor with
 * the balloon's lock held; so one of the two sees the other. Only one process can hold it with the floor of before, and it takes a
 * chunk at most until it reads the floor again: where there is room for that, the session need not wait for the lock.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "buffers.h"
#include "clients.h"
#include "floors.h"
#include "state.h"

/*
 * From libpq/auth.h, which is not included because it wants the headers of
 * Kerberos where the server was built with it. Nothing of a Port is looked at.
 */
struct Port;
typedef void (*authentication_hook) (struct Port *port, int status);
extern PGDLLIMPORT authentication_hook ClientAuthentication_hook;

static authentication_hook previous_authentication = NULL;

static void
client_leaves(int code, Datum argument)
{
	pg_atomic_fetch_sub_u32(&balloon->clients, 1);
}

/*
 * Give buffers back that the floor wants, a chunk's worth at most; returns how many. What is missing is looked at with the lock, so that
 * a chunk that somebody is just taking by the old floor is seen.
 */
static int64
give_back_some(void)
{
	int64		missing;

	LWLockAcquire(balloon->lock, LW_SHARED);
	missing = Min(balloon->nballooned, balloon_floor() - (NBuffers - balloon->nballooned));
	LWLockRelease(balloon->lock);
	return missing > 0 ? balloon_deflate(Min(missing, BALLOON_CHUNK)) : 0;
}

/*
 * Each new session raises the floor, and gives buffers back itself if it has
 * to: it cannot wait for the worker.
 */
static void
client_comes(struct Port *port, int status)
{
	if (previous_authentication)
		previous_authentication(port, status);
	if (status != STATUS_OK || balloon == NULL)
		return;
	on_shmem_exit(client_leaves, (Datum) 0);	/* after its transaction has been ended, and its pins with it */
	pg_atomic_fetch_add_u32(&balloon->clients, 1);	/* a full barrier: what is read below is not older */

	/* Who inflates takes the lock again as soon as he has let it go: who need not wait for it does not. */
	if (balloon->nballooned + BALLOON_CHUNK <= NBuffers - balloon_floor())
		return;

	/* A chunk at a time: where many come at once, each sees what is missing for all of them. */
	while (give_back_some() > 0)
		;
}

void
balloon_watch_clients(void)
{
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = client_comes;
}
