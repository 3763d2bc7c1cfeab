/*
 * prefetch.c
 *		Reads evicted pages back, in a worker of its own.
 *
 * A page is read as a query would read it: its relation is found by the file's
 * number, opened under AccessShareLock (so it cannot be dropped or truncated
 * meanwhile; left out if it is locked just now) and checked for still having that file, fork and block. One
 * worker serves one database and lives for two seconds at most: DROP DATABASE waits
 * for connections to end, and must get its chance in between.
 */
#include "postgres.h"

#include <fcntl.h>

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
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "ghosts.h"
#include "prefetch.h"
#include "report.h"
#include "settings.h"
#include "state.h"

#define BATCH 16384				/* pages taken from the table of ghosts at a time: the more, the denser they lie in their files */
#define SLICE 2.0				/* seconds that a worker lives */
#define PAUSE 150				/* milliseconds between two workers; DROP DATABASE looks every 100 ms, for five seconds */
#define GAP 8					/* pages that lie no further apart are asked of the operating system as one run … */
#define RUN 256					/* … of so many at most */
#define AHEAD 1024				/* pages asked for ahead of the run that is being read */
#define LINGER 20				/* milliseconds between two looks for more to read … */
#define LINGER_MOST 25			/* … so many of them before a worker ends without work */
#define TRANSACTION 2048		/* pages read before the locks are let go for a moment, and the cost of a miss is noted */
#define PROBES 3				/* pages of each piece that are read by themselves first, as a query that misses one would … */
#define PROBE_LEAST 64			/* … if it has so many */

PGDLLEXPORT void pg_balloon_prefetch_main(Datum argument);

/* Pages that were read by themselves, and the seconds that it took in all. */
typedef struct CostOfMiss
{
	double		seconds;
	int			pages;
} CostOfMiss;

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
	if (balloon_prefetch_left() <= 0)	/* what came just now is seen by the next tick */
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

/* May anything be read at all now? */
static bool
may_read(void)
{
	return !ShutdownRequestPending && !balloon->prefetch_stop && balloon_prefetch;
}

/* May more be read? Not without a free buffer: nothing is to be evicted for it. */
static bool
go_on(void)
{
	return may_read() && have_free_buffer();
}

static double
seconds_since(const instr_time *then)
{
	instr_time	passed;

	INSTR_TIME_SET_CURRENT(passed);
	INSTR_TIME_SUBTRACT(passed, *then);
	return INSTR_TIME_GET_DOUBLE(passed);
}

/* Read a page, and count it if it was not there. The worker tells by that count what part of the pages that came in were ours. */
static void
read_page(Relation relation, ForkNumber fork, BlockNumber block)
{
	int64		read_before = pgBufferUsage.shared_blks_read;

	ReleaseBuffer(ReadBufferExtended(relation, fork, block, RBM_NORMAL, NULL));
	pg_atomic_fetch_add_u64(&balloon->read_back, pgBufferUsage.shared_blks_read - read_before);
}

/* Read a few pages here and there, with nothing asked for ahead: what a miss costs. Adds their number and seconds. */
static void
probe(Relation relation, ForkNumber fork, const BalloonGhost *ghosts, int n, CostOfMiss *cost)
{
	for (int k = 1; k <= PROBES && n >= PROBE_LEAST && go_on(); k++)
	{
		BlockNumber block = ghosts[(int64) n * k / (PROBES + 1)].tag.blockNum;
		int64		read_before = pgBufferUsage.shared_blks_read;
		instr_time	then;

		INSTR_TIME_SET_CURRENT(then);
		read_page(relation, fork, block);
		if (pgBufferUsage.shared_blks_read > read_before)
		{
			cost->seconds += seconds_since(&then);
			cost->pages++;
		}
	}
}

/*
 * Tell the operating system that a run of pages will be read, or that it need not keep its own copy. A hint: whatever goes
 * wrong is left alone. Runs across segments are cut off. In a data directory with direct I/O it does nothing.
 */
static void
advise(const char *path, BlockNumber first, BlockNumber last, int advice)
{
	char		file[MAXPGPATH];
	BlockNumber segment = first / RELSEG_SIZE;
	int			fd;

	last = Min(last, (segment + 1) * (BlockNumber) RELSEG_SIZE - 1);
	if (segment == 0)
		strlcpy(file, path, sizeof(file));
	else
		snprintf(file, sizeof(file), "%s.%u", path, segment);
	fd = OpenTransientFile(file, O_RDONLY | PG_BINARY);
	if (fd < 0)
		return;
	(void) posix_fadvise(fd, (off_t) (first % RELSEG_SIZE) * BLCKSZ, (off_t) (last - first + 1) * BLCKSZ, advice);
	CloseTransientFile(fd);
}

/* Where the run that begins at ghost i ends (the ghost after its last). */
static int
end_of_run(const BalloonGhost *ghosts, int n, int i)
{
	int			end = i + 1;

	while (end < n && end - i < RUN && ghosts[end].tag.blockNum - ghosts[end - 1].tag.blockNum <= GAP)
		end++;
	return end;
}

/*
 * Read the pages of one fork of one relation. Returns how many were read or there already.
 *
 * Runs are asked for together, since a large read costs little more than a small one where reads are limited, and other
 * processes' single reads stand in the same queue. What has come into the pool need not be in the page cache too: memory is
 * short, or nothing would have been evicted.
 */
static int
read_file(const BalloonGhost *ghosts, int n, CostOfMiss *cost)
{
	const BufferTag *tag = &ghosts[0].tag;
	ForkNumber	fork = balloon_fork(tag);
	Oid			id = balloon_relid(balloon_tablespace(tag), balloon_relnumber(tag));
	Relation	relation;
	int			done = 0;

	/* Who holds it exclusively is about to change it; to wait for that would keep DROP DATABASE waiting too. */
	if (!OidIsValid(id) || !ConditionalLockRelationOid(id, AccessShareLock))
		return 0;
	relation = try_relation_open(id, NoLock);
	if (relation == NULL)
	{
		UnlockRelationOid(id, AccessShareLock);
		return 0;
	}
	if (RELKIND_HAS_STORAGE(relation->rd_rel->relkind) && balloon_number_of(relation) == balloon_relnumber(tag) &&
		!RelationUsesLocalBuffers(relation) && smgrexists(RelationGetSmgr(relation), fork))
	{
		BlockNumber blocks = RelationGetNumberOfBlocksInFork(relation, fork);
		char	   *path = balloon_path(relation, fork);
		int			asked = 0;	/* runs are cut alike, so its run begins where one that is read does */

		while (n > 0 && ghosts[n - 1].tag.blockNum >= blocks)
			n--;				/* truncated meanwhile */
		probe(relation, fork, ghosts, n, cost);
		for (int i = 0; i < n && go_on();)
		{
			int			end = end_of_run(ghosts, n, i);

			while (asked < n && asked <= i + AHEAD)
			{
				int			next = end_of_run(ghosts, n, asked);

				advise(path, ghosts[asked].tag.blockNum, ghosts[next - 1].tag.blockNum, POSIX_FADV_WILLNEED);
				asked = next;
			}
			for (int k = i; k < end && go_on(); k++)
			{
				CHECK_FOR_INTERRUPTS();
				read_page(relation, fork, ghosts[k].tag.blockNum);
				done++;
			}
			advise(path, ghosts[i].tag.blockNum, ghosts[end - 1].tag.blockNum, POSIX_FADV_DONTNEED);
			i = end;
		}
		pfree(path);
	}
	relation_close(relation, AccessShareLock);
	return done;
}

/* Count a piece, and learn from it what a miss costs here. */
static void
count(int asked, int64 read, double seconds, const CostOfMiss *cost)
{
	if (cost->pages > 0)
		balloon_report_miss(cost->seconds / cost->pages);
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.prefetched += read;
	balloon->counters.prefetch_stale += asked - read;
	balloon->counters.prefetch_time += seconds;
	LWLockRelease(balloon->lock);
}

void
pg_balloon_prefetch_main(Datum argument)
{
	Oid			database = DatumGetObjectId(argument);
	BalloonGhost *ghosts;
	instr_time	began;
	int			lingered = 0;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (balloon == NULL)
		proc_exit(0);
	balloon->prefetcher = MyProcPid;
	ghosts = MemoryContextAlloc(TopMemoryContext, BATCH * sizeof(BalloonGhost));
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);

	INSTR_TIME_SET_CURRENT(began);
	while (seconds_since(&began) < SLICE && may_read() && lingered < LINGER_MOST)
	{
		int			n = have_free_buffer() ? balloon_recall(database, ghosts, BATCH) : 0;
		int			begin = 0;

		if (n == 0)
		{
			/* Growth comes in steps, and starting a process for each would take longer than reading its pages. */
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LINGER, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			lingered++;
			continue;
		}
		lingered = 0;
		qsort(ghosts, n, sizeof(BalloonGhost), by_place);

		/* In pieces, so that locks are held for a moment only. */
		while (begin < n && go_on() && seconds_since(&began) < SLICE)
		{
			int			piece = Min(n, begin + TRANSACTION);
			int64		read_before = pgBufferUsage.shared_blks_read;
			CostOfMiss	cost = {0, 0};
			instr_time	then;

			INSTR_TIME_SET_CURRENT(then);
			StartTransactionCommand();
			pgstat_report_activity(STATE_RUNNING, "pg_balloon prefetch");
			for (int i = begin; i < piece;)
			{
				int			end = i + 1;

				while (end < piece && same_file(&ghosts[end].tag, &ghosts[i].tag))
					end++;
				(void) read_file(&ghosts[i], end - i, &cost);
				i = end;
			}
			CommitTransactionCommand();
			pgstat_report_activity(STATE_IDLE, NULL);

			count(piece - begin, pgBufferUsage.shared_blks_read - read_before, seconds_since(&then), &cost);
			begin = piece;
		}
		if (begin < n)
		{
			balloon_remember(&ghosts[begin], n - begin);
			if (may_read() && have_free_buffer())
				balloon_allow_prefetch(n - begin);
		}
	}
	proc_exit(0);
}
