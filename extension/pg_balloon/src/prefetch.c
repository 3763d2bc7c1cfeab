/*
 * prefetch.c
 *		Reads evicted pages back, in a worker of its own.
 *
 * A page is read as a query would read it: its relation is found by the file's
 * number, opened under AccessShareLock (so it cannot be dropped or truncated
 * meanwhile; left out if it is locked just now) and checked for still having that file, fork and block. However
 * slow the storage is, a lock is held for a fifth of a second, and a worker, which serves one database, lives for two:
 * who wants to change the table or drop the database gets his chance in between. (Whether somebody waits for the
 * lock cannot be asked: LockHasWaitersRelation() does not know locks that were taken by the fast path.)
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
#define SLICE 2.0				/* seconds that a worker lives; it ends the page that it is reading */
#define HOLD 0.2				/* seconds for which a piece is read; then the locks are let go */
#define PAUSE 150				/* milliseconds between two workers; DROP DATABASE looks every 100 ms, for five seconds */
#define GAP 8					/* pages that lie no further apart are asked of the operating system as one run … */
#define RUN 64					/* … of so many at most */
#define AHEAD 128				/* pages asked for ahead of the run that is being read */
#define LINGER 20				/* milliseconds between two looks for more to read … */
#define LINGER_MOST 25			/* … so many of them before a worker ends without work */
#define TRANSACTION 2048		/* pages in a piece at most; after each the cost of a miss is noted */
#define PROBES 3				/* pages of each piece that are read by themselves first, as a query that misses one would … */
#define PROBE_LEAST 64			/* … if it has so many */

PGDLLEXPORT void pg_balloon_prefetch_main(Datum argument);

/* What a piece, which is read in one transaction, has come to. */
typedef struct Piece
{
	instr_time	began;
	int			read;			/* pages that were not in the pool */
	int			alone;			/* those of them that were read with nothing asked for ahead … */
	double		seconds;		/* … and what that took in all */
} Piece;

/* Of the main worker. */
static BackgroundWorkerHandle *running = NULL;
static TimestampTz ended = 0;

/* Of a prefetch worker. */
static instr_time born;
static uint32 wait_prefetch;	/* wait event PgBalloonPrefetch; "Extension" before 17 */

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
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		can = form->datallowconn && form->datconnlimit != BALLOON_INVALID_DATABASE;
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();
	return can;
}

/* Are there pages that may be read back, and buffers for them? What comes just now is seen by the next tick. */
bool
balloon_prefetch_due(void)
{
	return balloon_prefetch_left() > 0 && have_free_buffer();
}

/*
 * Called by the main worker each tick: start a prefetch worker if there is
 * something for it, none is running, and the last one is gone for a while.
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
	if (!balloon_prefetch_due())
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

static double
seconds_since(const instr_time *then)
{
	instr_time	passed;

	INSTR_TIME_SET_CURRENT(passed);
	INSTR_TIME_SUBTRACT(passed, *then);
	return INSTR_TIME_GET_DOUBLE(passed);
}

/* May pages be read back now? Not without a free buffer: nothing is to be evicted for it. */
static bool
wanted(void)
{
	return !balloon->prefetch_stop && balloon_prefetch && have_free_buffer();
}

/* May this worker read more? */
static bool
go_on(void)
{
	return wanted() && seconds_since(&born) < SLICE;
}

/* … and within this piece? */
static bool
within(const Piece *piece)
{
	return go_on() && seconds_since(&piece->began) < HOLD;
}

/*
 * Read a page, and count it if it was not there; returns whether it was not. The main worker tells by the count in shared memory what part
 * of the pages that came in were ours. Maps of free space and visibility may be torn after a crash: they are read as their own code does.
 */
static bool
read_page(Relation relation, ForkNumber fork, BlockNumber block, Piece *piece)
{
	int64		read_before = pgBufferUsage.shared_blks_read;
	bool		map = fork == FSM_FORKNUM || fork == VISIBILITYMAP_FORKNUM;

	ReleaseBuffer(ReadBufferExtended(relation, fork, block, map ? RBM_ZERO_ON_ERROR : RBM_NORMAL, NULL));
	if (pgBufferUsage.shared_blks_read == read_before)
		return false;
	pg_atomic_fetch_add_u64(&balloon->read_back, 1);
	piece->read++;
	return true;
}

/* Read a few pages here and there, with nothing asked for ahead: what a miss costs. */
static void
probe(Relation relation, ForkNumber fork, const BalloonGhost *ghosts, int n, Piece *piece)
{
	for (int k = 1; k <= PROBES && n >= PROBE_LEAST && within(piece); k++)
	{
		BlockNumber block = ghosts[(int64) n * k / (PROBES + 1)].tag.blockNum;
		instr_time	then;

		INSTR_TIME_SET_CURRENT(then);
		if (read_page(relation, fork, block, piece))
		{
			piece->seconds += seconds_since(&then);
			piece->alone++;
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
 * Read the pages of one fork of one relation, for as long as the piece may last, at least one. Returns how many ghosts are dealt
 * with: those read, there already, or not to be read.
 *
 * Runs are asked for together, since a large read costs little more than a small one where reads are limited, and other
 * processes' single reads stand in the same queue. What has come into the pool need not be in the page cache too: memory is
 * short, or nothing would have been evicted.
 */
static int
read_file(const BalloonGhost *ghosts, int n, Piece *piece)
{
	const BufferTag *tag = &ghosts[0].tag;
	ForkNumber	fork = balloon_fork(tag);
	Oid			id = balloon_relid(balloon_tablespace(tag), balloon_relnumber(tag));
	Relation	relation;
	int			done = n;

	/* Who holds it exclusively is about to change it, as is who waits for that; to wait would keep DROP DATABASE waiting too. */
	if (!OidIsValid(id) || !ConditionalLockRelationOid(id, AccessShareLock))
		return n;
	relation = try_relation_open(id, NoLock);
	if (relation == NULL)
	{
		UnlockRelationOid(id, AccessShareLock);
		return n;
	}
	if (RELKIND_HAS_STORAGE(relation->rd_rel->relkind) && balloon_number_of(relation) == balloon_relnumber(tag) &&
		!RelationUsesLocalBuffers(relation) && smgrexists(RelationGetSmgr(relation), fork))
	{
		BlockNumber blocks = RelationGetNumberOfBlocksInFork(relation, fork);
		char	   *path = balloon_path(relation, fork);
		int			asked = 0;	/* runs are cut alike, so its run begins where one that is read does */
		int			i = 0;

		while (n > 0 && ghosts[n - 1].tag.blockNum >= blocks)
			n--;				/* truncated meanwhile */
		probe(relation, fork, ghosts, n, piece);
		while (i < n && (i == 0 || within(piece)))
		{
			int			begin = i;
			int			end = end_of_run(ghosts, n, begin);

			while (asked < n && asked <= i + AHEAD && within(piece))
			{
				int			next = end_of_run(ghosts, n, asked);

				advise(path, ghosts[asked].tag.blockNum, ghosts[next - 1].tag.blockNum, POSIX_FADV_WILLNEED);
				asked = next;
			}
			do
			{
				CHECK_FOR_INTERRUPTS();
				(void) read_page(relation, fork, ghosts[i++].tag.blockNum, piece);
			} while (i < end && within(piece));
			advise(path, ghosts[begin].tag.blockNum, ghosts[i - 1].tag.blockNum, POSIX_FADV_DONTNEED);
		}
		if (i < n)
			done = i;
		pfree(path);
	}
	relation_close(relation, AccessShareLock);
	return done;
}

/*
 * Read a piece of the ghosts, which stand in the order of their places, in a transaction; learn from it what a miss costs here,
 * and count it. Returns how many ghosts are dealt with, at least one.
 */
static int
read_piece(const BalloonGhost *ghosts, int n)
{
	Piece		piece = {.read = 0};
	int			done = 0;

	INSTR_TIME_SET_CURRENT(piece.began);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "pg_balloon prefetch");
	while (done < n && (done == 0 || within(&piece)))
	{
		int			end = done + 1;

		while (end < n && same_file(&ghosts[end].tag, &ghosts[done].tag))
			end++;
		done += read_file(&ghosts[done], end - done, &piece);
	}
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);

	if (piece.alone > 0)
		balloon_report_miss(piece.seconds / piece.alone);
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.prefetched += piece.read;
	balloon->counters.prefetch_stale += Max(0, done - piece.read);	/* what was probed may be among those left */
	balloon->counters.prefetch_time += seconds_since(&piece.began);
	LWLockRelease(balloon->lock);
	return done;
}

static void
prefetcher_leaves(int code, Datum argument)
{
	if (balloon->prefetcher == MyProcPid)
		balloon->prefetcher = 0;
}

void
pg_balloon_prefetch_main(Datum argument)
{
	Oid			database = DatumGetObjectId(argument);
	BalloonGhost *ghosts;
	int			lingered = 0;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (balloon == NULL)
		proc_exit(0);
	balloon->prefetcher = MyProcPid;
	before_shmem_exit(prefetcher_leaves, (Datum) 0);
	ghosts = MemoryContextAlloc(TopMemoryContext, BATCH * sizeof(BalloonGhost));
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	balloon_settings_of_worker();
	wait_prefetch = balloon_wait_event("PgBalloonPrefetch");

	INSTR_TIME_SET_CURRENT(born);
	while (seconds_since(&born) < SLICE && !balloon->prefetch_stop && balloon_prefetch && lingered < LINGER_MOST)
	{
		int			n = have_free_buffer() ? balloon_recall(database, ghosts, BATCH) : 0;
		int			begin = 0;

		if (n == 0)
		{
			/* Growth comes in steps, and starting a process for each would take longer than reading its pages. */
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LINGER, wait_prefetch);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			lingered++;
			continue;
		}
		lingered = 0;
		qsort(ghosts, n, sizeof(BalloonGhost), by_place);

		/* In pieces, so that locks are held for a moment only. */
		while (begin < n && go_on())
			begin += read_piece(&ghosts[begin], Min(n - begin, TRANSACTION));
		if (begin < n)
		{
			balloon_remember(&ghosts[begin], n - begin);
			if (wanted())
				balloon_allow_prefetch(n - begin);
		}
	}
	proc_exit(0);
}
