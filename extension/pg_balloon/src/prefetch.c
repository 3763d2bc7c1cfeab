/*
 * prefetch.c
 *		Reads evicted pages back, in a background worker.
 *
 * A page is read as a query reads it. Its relation is found by the file's
 * number, opened under AccessShareLock (so it cannot be dropped or truncated
 * meanwhile; skipped if the lock is not free), and checked for still having
 * that file, fork and block.
 *
 * On slow storage, too, a lock is held for a fifth of a second, and a
 * worker, which serves one database, runs for two seconds. In between, other
 * processes can change the table or drop the database. (Lock waiters cannot be
 * detected: LockHasWaitersRelation() does not know locks taken by
 * the fast path.)
 *
 * Copyright (c) 2026, pgherd maintainers
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

#include "actuator.h"
#include "compat.h"
#include "guc.h"
#include "shared_state.h"

/* Pages taken from the ghost list at a time. More of them are closer together in their files. */
#define BATCH 16384
/* Seconds for which a worker runs; it finishes the page that it is reading. */
#define WORKER_SECONDS 2.0
/* Seconds for which a piece is read, until its locks are released. */
#define LOCK_SECONDS 0.2
/* Milliseconds between two workers. DROP DATABASE checks every 100 ms, for five seconds. */
#define PAUSE 150
/* Pages at most this far apart are requested from the operating system as one run. */
#define MAX_GAP 8
#define MAX_RUN 64				/* Maximum number of pages in a run. */
#define READ_AHEAD 128			/* Pages requested ahead of the run that is being read. */
#define IDLE_WAIT 20			/* Milliseconds between two checks for more work. */
#define MAX_IDLE_WAITS 25		/* Number of checks without work after which a worker exits. */
/* Maximum number of pages in a piece. The cost of a miss is stored after each piece. */
#define MAX_PIECE 2048
/* Pages of each piece that are read alone first, like a miss of a query. */
#define PROBES 3
#define PROBE_LEAST 64			/* Minimum number of pages in a piece that has probes. */

PGDLLEXPORT void pg_balloon_prefetch_main(Datum argument);

/* Totals of a piece, which is read in one transaction. */
typedef struct Piece
{
	instr_time	began;
	int			read;			/* pages that were not in the pool */
	int			alone;			/* pages of those that were read without read-ahead */
	double		seconds;		/* time for reading those */
} Piece;

/* Used by the main worker. */
static BackgroundWorkerHandle *running = NULL;
static instr_time ended;		/* end of the last worker; 0: there was none */
static bool warned_no_slot = false;	/* since the last worker was started */

/* Used by a prefetch worker. */
static instr_time born;
static uint32 wait_prefetch;	/* wait event PgBalloonPrefetch; "Extension" before 17 */

/* Return true if the database exists and accepts connections. */
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

/* Allow that many more pages to be read back. */
void
balloon_allow_prefetch(int64 pages)
{
	if (balloon_prefetch_left() < NBuffers)
		pg_atomic_fetch_add_u64(&balloon->prefetch_left, pages);
}

/* Forbid reading back. */
void
balloon_stop_prefetch(void)
{
	pg_atomic_write_u64(&balloon->prefetch_left, 0);
}

/*
 * Return true if pages may be read back, and buffers are free for them. Pages
 * evicted meanwhile are handled by the next tick.
 */
bool
balloon_prefetch_due(void)
{
	return balloon_prefetch_left() > 0 && have_free_buffer();
}

/* Return the seconds since then. */
static double
seconds_since(const instr_time *then)
{
	instr_time	passed;

	INSTR_TIME_SET_CURRENT(passed);
	INSTR_TIME_SUBTRACT(passed, *then);
	return INSTR_TIME_GET_DOUBLE(passed);
}

/*
 * Start a prefetch worker if there is work, none is running, and the last one
 * exited PAUSE ago. The main worker calls it each tick.
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
		INSTR_TIME_SET_CURRENT(ended);
	}
	if (!balloon_prefetch_due())
		return;
	if (!INSTR_TIME_IS_ZERO(ended) && seconds_since(&ended) * 1000 < PAUSE)
		return;
	database = ghosts_database();
	if (database == InvalidOid)
	{
		balloon_stop_prefetch();
		return;
	}
	if (!can_connect(database))
	{
		ghosts_drop_database(database);
		return;
	}

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pg_balloon", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_balloon_prefetch_main",
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "pg_balloon prefetch", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pg_balloon prefetch", BGW_MAXLEN);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	before = MemoryContextSwitchTo(TopMemoryContext);	/* the handle must outlive the tick */
	if (!RegisterDynamicBackgroundWorker(&worker, &running))
	{
		running = NULL;			/* try again in the next tick */
		if (!warned_no_slot)
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("pg_balloon cannot read evicted pages back: no background worker slot is free"),
					 errhint("Raise max_worker_processes.")));
	}
	warned_no_slot = running == NULL;
	MemoryContextSwitchTo(before);
}

/* Compare ghosts by their position in their files. */
static int
by_position(const void *a, const void *b)
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

/* Return true if both pages are in the same fork of the same relation. */
static bool
same_file(const BufferTag *a, const BufferTag *b)
{
	return balloon_tablespace(a) == balloon_tablespace(b) &&
		balloon_relnumber(a) == balloon_relnumber(b) &&
		balloon_fork(a) == balloon_fork(b);
}

/*
 * Return true if pages may be read back now. That requires a free buffer,
 * because prefetch must not evict pages.
 */
static bool
prefetch_allowed(void)
{
	return !balloon->prefetch_stop && balloon_prefetch && have_free_buffer();
}

/* Return true if this worker may read more. */
static bool
may_continue(void)
{
	return prefetch_allowed() && seconds_since(&born) < WORKER_SECONDS;
}

/* Return true if this worker may read more of this piece. */
static bool
within_piece(const Piece *piece)
{
	return may_continue() && seconds_since(&piece->began) < LOCK_SECONDS;
}

/*
 * Read a page. Returns true, and counts it, if it was not in the pool.
 *
 * By the count in shared memory, the main worker separates prefetched pages
 * from misses. Maps of free space and visibility may be torn after a crash, so
 * they are read in the same way as their access methods read them.
 */
static bool
read_page(Relation relation, ForkNumber fork, BlockNumber block, Piece *piece)
{
	int64		read_before = pgBufferUsage.shared_blks_read;
	bool		map = fork == FSM_FORKNUM || fork == VISIBILITYMAP_FORKNUM;

	ReleaseBuffer(ReadBufferExtended(relation, fork, block,
									 map ? RBM_ZERO_ON_ERROR : RBM_NORMAL, NULL));
	if (pgBufferUsage.shared_blks_read == read_before)
		return false;
	pg_atomic_fetch_add_u64(&balloon->read_back, 1);
	piece->read++;
	return true;
}

/* Read a few pages without read-ahead, to measure the cost of a miss. */
static void
probe(Relation relation, ForkNumber fork, const BalloonGhost *ghosts, int n, Piece *piece)
{
	for (int k = 1; k <= PROBES && n >= PROBE_LEAST && within_piece(piece); k++)
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
 * Advise the operating system that a run of pages will be read, or that it can
 * drop its copy. It is a hint, so errors are ignored. Runs across segments are
 * cut off. Has no effect in a data directory with direct I/O.
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
	(void) posix_fadvise(fd, (off_t) (first % RELSEG_SIZE) * BLCKSZ,
						 (off_t) (last - first + 1) * BLCKSZ, advice);
	CloseTransientFile(fd);
}

/* Return the index after the last ghost of the run that begins at ghost i. */
static int
end_of_run(const BalloonGhost *ghosts, int n, int i)
{
	int			end = i + 1;

	while (end < n && end - i < MAX_RUN &&
		   ghosts[end].tag.blockNum - ghosts[end - 1].tag.blockNum <= MAX_GAP)
		end++;
	return end;
}

/*
 * Read the pages of one fork of one relation, at least one, until the piece
 * ends. Returns how many ghosts are done: read, in the pool already, or not
 * readable.
 *
 * Runs are requested as a whole, because a large read costs little more than a
 * small one if the number of reads is limited, and single reads of other
 * processes wait in the same queue. The page cache's copy of a run is dropped,
 * because memory is short, or no page would have been evicted.
 */
static int
read_file(const BalloonGhost *ghosts, int n, Piece *piece)
{
	const BufferTag *tag = &ghosts[0].tag;
	ForkNumber	fork = balloon_fork(tag);
	Oid			id = balloon_relid(balloon_tablespace(tag), balloon_relnumber(tag));
	Relation	relation;
	int			done = n;

	/*
	 * An exclusive lock, held or requested, means that the table is about to
	 * change. Waiting for it would also delay DROP DATABASE.
	 */
	if (!OidIsValid(id) || !ConditionalLockRelationOid(id, AccessShareLock))
		return n;
	relation = try_relation_open(id, NoLock);
	if (relation == NULL)
	{
		UnlockRelationOid(id, AccessShareLock);
		return n;
	}
	if (RELKIND_HAS_STORAGE(relation->rd_rel->relkind) &&
		balloon_number_of(relation) == balloon_relnumber(tag) &&
		!RelationUsesLocalBuffers(relation) && smgrexists(RelationGetSmgr(relation), fork))
	{
		BlockNumber blocks = RelationGetNumberOfBlocksInFork(relation, fork);
		char	   *path = balloon_path(relation, fork);
		/* Runs are always cut in the same way, so this one begins where a run to read begins. */
		int			requested = 0;
		int			i = 0;

		while (n > 0 && ghosts[n - 1].tag.blockNum >= blocks)
			n--;				/* truncated meanwhile */
		probe(relation, fork, ghosts, n, piece);
		while (i < n && (i == 0 || within_piece(piece)))
		{
			int			begin = i;
			int			end = end_of_run(ghosts, n, begin);

			while (requested < n && requested <= i + READ_AHEAD && within_piece(piece))
			{
				int			next = end_of_run(ghosts, n, requested);

				advise(path, ghosts[requested].tag.blockNum, ghosts[next - 1].tag.blockNum,
					   POSIX_FADV_WILLNEED);
				requested = next;
			}
			do
			{
				CHECK_FOR_INTERRUPTS();
				(void) read_page(relation, fork, ghosts[i++].tag.blockNum, piece);
			} while (i < end && within_piece(piece));
			advise(path, ghosts[begin].tag.blockNum, ghosts[i - 1].tag.blockNum,
				   POSIX_FADV_DONTNEED);
		}
		if (i < n)
			done = i;
		pfree(path);
	}
	relation_close(relation, AccessShareLock);
	return done;
}

/*
 * Read a piece of the ghosts, which are sorted by position, in one
 * transaction. Store the counts and the cost of a miss. Returns how many
 * ghosts are done, at least one.
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
	while (done < n && (done == 0 || within_piece(&piece)))
	{
		int			end = done + 1;

		while (end < n && same_file(&ghosts[end].tag, &ghosts[done].tag))
			end++;
		done += read_file(&ghosts[done], end - done, &piece);
	}
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);

	if (piece.alone > 0)
		balloon_last_decision_miss(piece.seconds / piece.alone);
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.prefetched += piece.read;
	/* the remaining ghosts may include probed ones */
	balloon->counters.prefetch_skipped += Max(0, done - piece.read);
	balloon->counters.prefetch_time += seconds_since(&piece.began);
	LWLockRelease(balloon->lock);
	return done;
}

/* Unregister this prefetch worker. */
static void
prefetcher_exits(int code, Datum argument)
{
	if (balloon->prefetcher == MyProcPid)
		balloon->prefetcher = 0;
}

/* Run a prefetch worker for one database. */
void
pg_balloon_prefetch_main(Datum argument)
{
	Oid			database = DatumGetObjectId(argument);
	BalloonGhost *ghosts;
	int			idle_waits = 0;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (balloon == NULL)
		proc_exit(0);
	balloon->prefetcher = MyProcPid;
	before_shmem_exit(prefetcher_exits, (Datum) 0);
	ghosts = MemoryContextAlloc(TopMemoryContext, BATCH * sizeof(BalloonGhost));
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	balloon_set_worker_gucs();
	wait_prefetch = balloon_wait_event("PgBalloonPrefetch");

	INSTR_TIME_SET_CURRENT(born);
	while (seconds_since(&born) < WORKER_SECONDS && !balloon->prefetch_stop && balloon_prefetch &&
		   idle_waits < MAX_IDLE_WAITS)
	{
		int			n = have_free_buffer() ? ghosts_take(database, ghosts, BATCH) : 0;
		int			begin = 0;

		if (n == 0)
		{
			/*
			 * The pool grows in steps, and starting a process for each step
			 * would take longer than reading its pages.
			 */
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 IDLE_WAIT, wait_prefetch);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			idle_waits++;
			continue;
		}
		idle_waits = 0;
		qsort(ghosts, n, sizeof(BalloonGhost), by_position);

		/* Read in pieces, so that locks are held only briefly. */
		while (begin < n && may_continue())
			begin += read_piece(&ghosts[begin], Min(n - begin, MAX_PIECE));
		if (begin < n)
		{
			ghosts_return(&ghosts[begin], n - begin);
			if (prefetch_allowed())
				balloon_allow_prefetch(n - begin);
		}
	}
	proc_exit(0);
}
