/*
 * prefetch.c
 *		Reads evicted pages back, in a worker of its own.
 *
 * A page is read as a query would read it: its relation is found by the file's
 * number, opened under AccessShareLock (so it cannot be dropped or truncated
 * meanwhile) and checked for still having that file, fork and block. One
 * worker serves one database and lives for a second at most: DROP DATABASE waits
 * for connections to end, and must get its chance in between.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "executor/instrument.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/smgr.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

#include "pg_balloon.h"

#define BATCH 1024				/* pages taken from the table of ghosts at a time */
#define SLICE 1.0				/* seconds that a worker lives */
#define PAUSE 300				/* milliseconds between two workers */
#define AHEAD 32				/* pages asked of the operating system ahead of reading */
#define SMOOTHING 0.2			/* weight of the newest batch in the cost of a miss */

PGDLLEXPORT void pg_balloon_prefetch_main(Datum argument);

static BackgroundWorkerHandle *running = NULL;
static TimestampTz ended = 0;

/* Does the database exist, and take connections? */
static bool
can_connect(Oid database)
{
	HeapTuple	tuple;
	bool		can = false;

	StartTransactionCommand();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	if (HeapTupleIsValid(tuple))
	{
		can = ((Form_pg_database) GETSTRUCT(tuple))->datallowconn;
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();
	return can;
}

/*
 * Called by the main worker each tick: start a prefetch worker if there are
 * pages that may be read back, none is running, and the last one is gone for a while.
 */
void
balloon_prefetch_tick(void)
{
	BackgroundWorker worker;
	MemoryContext before;
	Oid			database;
	pid_t		pid;

	if (running != NULL)
	{
		if (GetBackgroundWorkerPid(running, &pid) != BGWH_STOPPED)
			return;
		pfree(running);
		running = NULL;
		ended = GetCurrentTimestamp();
	}
	if (balloon->prefetch_left <= 0)	/* looked at without the lock: the next tick sees it */
		return;
	if (ended != 0 && !TimestampDifferenceExceeds(ended, GetCurrentTimestamp(), PAUSE))
		return;
	database = balloon_ghost_database();
	if (database == InvalidOid)
	{
		balloon_stop_prefetch();
		return;
	}
	if (!can_connect(database))
	{
		balloon_forget(database);
		return;
	}

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pg_balloon", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_balloon_prefetch_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "pg_balloon prefetch", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pg_balloon prefetch", BGW_MAXLEN);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	before = MemoryContextSwitchTo(TopMemoryContext);	/* the handle must outlive the tick */
	if (!RegisterDynamicBackgroundWorker(&worker, &running))
		running = NULL;			/* no worker slot is free: tried again */
	MemoryContextSwitchTo(before);
}

static int
by_place(const void *a, const void *b)
{
	const BufferTag *x = &((const BalloonGhost *) a)->tag;
	const BufferTag *y = &((const BalloonGhost *) b)->tag;

#define ORDER(p, q) if ((p) != (q)) return (p) < (q) ? -1 : 1
	ORDER(balloon_tablespace(x), balloon_tablespace(y));
	ORDER(balloon_relnumber(x), balloon_relnumber(y));
	ORDER(balloon_fork(x), balloon_fork(y));
	ORDER(x->blockNum, y->blockNum);
	return 0;
}

static bool
same_file(const BufferTag *a, const BufferTag *b)
{
	return balloon_tablespace(a) == balloon_tablespace(b) && balloon_relnumber(a) == balloon_relnumber(b) &&
		balloon_fork(a) == balloon_fork(b);
}

/* May more be read? Not without a free buffer: nothing is to be evicted for it. */
static bool
go_on(void)
{
	return !ShutdownRequestPending && !balloon->prefetch_stop && balloon_prefetch && have_free_buffer();
}

/* Read the pages of one fork of one relation. Returns how many were read or there already. */
static int
read_file(const BalloonGhost *ghosts, int n)
{
	const BufferTag *tag = &ghosts[0].tag;
	ForkNumber	fork = balloon_fork(tag);
	Oid			id = balloon_relid(balloon_tablespace(tag), balloon_relnumber(tag));
	Relation	relation = OidIsValid(id) ? try_relation_open(id, AccessShareLock) : NULL;
	int			done = 0;

	if (relation == NULL)
		return 0;
	if (RELKIND_HAS_STORAGE(relation->rd_rel->relkind) && balloon_number_of(relation) == balloon_relnumber(tag) &&
		!RelationUsesLocalBuffers(relation) && smgrexists(RelationGetSmgr(relation), fork))
	{
		BlockNumber blocks = RelationGetNumberOfBlocksInFork(relation, fork);

		for (int i = 0; i < n && ghosts[i].tag.blockNum < blocks && go_on(); i++)
		{
			CHECK_FOR_INTERRUPTS();
			if (i % AHEAD == 0)
				for (int k = i; k < Min(n, i + AHEAD) && ghosts[k].tag.blockNum < blocks; k++)
					(void) PrefetchBuffer(relation, fork, ghosts[k].tag.blockNum);
			ReleaseBuffer(ReadBufferExtended(relation, fork, ghosts[i].tag.blockNum, RBM_NORMAL, NULL));
			done++;
		}
	}
	relation_close(relation, AccessShareLock);
	return done;
}

/* Count a batch, and learn from it what a miss costs here. */
static void
count(int asked, int64 read, double seconds)
{
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.prefetched += read;
	balloon->counters.prefetch_stale += asked - read;
	balloon->counters.prefetch_time += seconds;
	LWLockRelease(balloon->lock);
	if (read < 16)
		return;
	LWLockAcquire(balloon->report_lock, LW_EXCLUSIVE);
	if (balloon->report.miss_cost <= 0)
		balloon->report.miss_cost = seconds / read;
	else
		balloon->report.miss_cost += SMOOTHING * (seconds / read - balloon->report.miss_cost);
	LWLockRelease(balloon->report_lock);
}

void
pg_balloon_prefetch_main(Datum argument)
{
	Oid			database = DatumGetObjectId(argument);
	BalloonGhost *ghosts;
	instr_time	began;
	instr_time	now;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (balloon == NULL)
		proc_exit(0);
	ghosts = MemoryContextAlloc(TopMemoryContext, BATCH * sizeof(BalloonGhost));
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);

	INSTR_TIME_SET_CURRENT(began);
	for (;;)
	{
		int			n;
		int64		read_before = pgBufferUsage.shared_blks_read;
		instr_time	batch;

		INSTR_TIME_SET_CURRENT(now);
		batch = now;
		INSTR_TIME_SUBTRACT(now, began);
		if (INSTR_TIME_GET_DOUBLE(now) > SLICE || !go_on())
			break;
		n = balloon_recall(database, ghosts, BATCH);
		if (n == 0)
			break;
		qsort(ghosts, n, sizeof(BalloonGhost), by_place);

		StartTransactionCommand();
		pgstat_report_activity(STATE_RUNNING, "pg_balloon prefetch");
		for (int i = 0; i < n;)
		{
			int			end = i + 1;

			while (end < n && same_file(&ghosts[end].tag, &ghosts[i].tag))
				end++;
			(void) read_file(&ghosts[i], end - i);
			i = end;
		}
		CommitTransactionCommand();
		pgstat_report_activity(STATE_IDLE, NULL);

		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, batch);
		count(n, pgBufferUsage.shared_blks_read - read_before, INSTR_TIME_GET_DOUBLE(now));
	}
	proc_exit(0);
}
