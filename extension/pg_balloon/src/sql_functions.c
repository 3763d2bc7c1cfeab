/*
 * sql_functions.c
 *		Functions that SQL can call.
 *
 * The extension's script grants pg_balloon_status() and the view to
 * pg_monitor. The other functions are for superusers.
 *
 * pg_balloon_check() and pg_balloon_status() examine every buffer without its
 * header's lock. The first examines a buffer that is just changing again. The
 * second may be off by one page.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "actuator.h"
#include "compat.h"
#include "controller.h"
#include "guc.h"
#include "memory_signals.h"
#include "shared_state.h"

/* milliseconds between two examinations of a suspicious buffer */
#define RECHECK_EVERY 20
#define RECHECK_FOR 10			/* seconds after which it counts */

/*
 * Count the buffers that break the rules of shared_state.h. More than zero is
 * a bug.
 *
 * A buffer breaks them if it is in the balloon without exactly its pin, or
 * with a tag, or if it is pinned for RECHECK_FOR seconds without a tag and
 * without being in the balloon. (A process that reads a page has such a buffer
 * for a moment. Since 16, a process that waits for the lock to extend a table
 * has up to 64. So those are examined again.) A wrong nballooned counts as one
 * buffer.
 */
static int64
count_violations(void)
{
	int64		violations = 0;
	int			counted = 0;
	int		   *odd = palloc_extended(sizeof(int) * Max(NBuffers, 1), MCXT_ALLOC_HUGE);
	int			nodd = 0;

	LWLockAcquire(balloon->lock, LW_SHARED);
	for (int id = 0; id < NBuffers; id++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);

		if (balloon_has(id))
		{
			counted++;
			if (BUF_STATE_GET_REFCOUNT(state) != 1 ||
				(state & (BM_TAG_VALID | BM_VALID | BM_DIRTY | BM_IO_IN_PROGRESS)))
				violations++;
		}
		else if (BUF_STATE_GET_REFCOUNT(state) != 0 && !(state & BM_TAG_VALID))
			odd[nodd++] = id;
	}
	if (counted != balloon->nballooned)
		violations++;
	LWLockRelease(balloon->lock);

	for (int check = 0; check < RECHECK_FOR * 1000 / RECHECK_EVERY && nodd > 0; check++)
	{
		int			left = 0;

		CHECK_FOR_INTERRUPTS();
		pg_usleep(RECHECK_EVERY * 1000L);
		LWLockAcquire(balloon->lock, LW_SHARED);
		for (int i = 0; i < nodd; i++)
		{
			uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(odd[i])->state);

			if (!balloon_has(odd[i]) && BUF_STATE_GET_REFCOUNT(state) != 0 &&
				!(state & BM_TAG_VALID))
				odd[left++] = odd[i];
		}
		LWLockRelease(balloon->lock);
		nodd = left;
	}
	pfree(odd);
	return violations + nodd;
}

/*
 * Measure the bytes of the pool that are in memory, and those of them that are
 * wholly within ballooned buffers (which should be none), by mincore(). Both
 * are -1 if that fails. Pages in swap are not in memory.
 */
static void
measure_residency(int64 *all, int64 *ballooned)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t	from = TYPEALIGN_DOWN(page, (uintptr_t) BufferBlocks);
	uintptr_t	end = TYPEALIGN(page, (uintptr_t) BufferBlocks + (uintptr_t) NBuffers * BLCKSZ);
	Size		step = 8192;	/* pages per call */
	unsigned char *vector = palloc(step);

	*all = *ballooned = 0;
	while (from < end)
	{
		Size		n = Min(step, (end - from) / page);

		CHECK_FOR_INTERRUPTS();
		if (mincore((void *) from, n * page, vector) != 0)
		{
			*all = *ballooned = -1;
			break;
		}
		for (Size i = 0; i < n; i++)
		{
			int64		offset = (int64) (from + i * page) - (int64) (uintptr_t) BufferBlocks;
			bool		inside = offset >= 0;

			if (!(vector[i] & 1))
				continue;
			*all += page;
			for (int64 at = offset; inside && at < offset + (int64) page; at += BLCKSZ)
				inside = at / BLCKSZ < NBuffers && balloon_has(at / BLCKSZ);
			inside = inside && (offset + (int64) page - 1) / BLCKSZ < NBuffers &&
				balloon_has((offset + page - 1) / BLCKSZ);
			if (inside)
				*ballooned += page;
		}
		from += n * page;
	}
	pfree(vector);
}

PG_FUNCTION_INFO_V1(pg_balloon_inflate);
PG_FUNCTION_INFO_V1(pg_balloon_deflate);
PG_FUNCTION_INFO_V1(pg_balloon_check);
PG_FUNCTION_INFO_V1(pg_balloon_status);
PG_FUNCTION_INFO_V1(pg_balloon_counters);
PG_FUNCTION_INFO_V1(pg_balloon_reset);

/* Raise an error if the library is not loaded or the balloon is not usable. */
static void
require_usable(void)
{
	if (balloon == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_balloon is not loaded"),
				 errhint("Add it to shared_preload_libraries and restart the server.")));
	if (!balloon->usable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_balloon cannot be used on this server"),
				 errdetail("%s", balloon->unusable_reason)));
}

/* Return the number of whole buffers in that many bytes. */
static int64
buffers_of(int64 bytes)
{
	if (bytes < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of bytes must not be negative: %lld", (long long) bytes)));
	return bytes / BLCKSZ;
}

/* pg_balloon_inflate(bytes, write): returns the bytes that moved into the balloon. */
Datum
pg_balloon_inflate(PG_FUNCTION_ARGS)
{
	int64		buffers = buffers_of(PG_GETARG_INT64(0));

	require_usable();
	PG_RETURN_INT64(balloon_inflate(buffers, PG_GETARG_BOOL(1), false, 0) * BLCKSZ);
}

/* pg_balloon_deflate(bytes): returns the bytes that returned to the pool. */
Datum
pg_balloon_deflate(PG_FUNCTION_ARGS)
{
	int64		buffers = buffers_of(PG_GETARG_INT64(0));

	require_usable();
	PG_RETURN_INT64(balloon_deflate(buffers) * BLCKSZ);
}

/* pg_balloon_check(): returns the number of buffers that break a rule, always 0. */
Datum
pg_balloon_check(PG_FUNCTION_ARGS)
{
	require_usable();
	PG_RETURN_INT64(count_violations());
}

/* Make a row with as many columns as the caller's result type. */
static Datum
make_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls, int n)
{
	TupleDesc	descriptor;

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (descriptor->natts != n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_balloon's library returns %d columns, but its SQL script declares %d",
						n, descriptor->natts),
				 errhint("Restart the server if another version was installed since its start. "
						 "Then run ALTER EXTENSION pg_balloon UPDATE.")));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
}

/* pg_balloon_status(): returns sizes, memory signals and the last decision. */
Datum
pg_balloon_status(PG_FUNCTION_ARGS)
{
	Datum		values[32];
	bool		nulls[32] = {false};
	BalloonLastDecision last;
	int64		resident;
	int64		balloon_resident;
	int64		in_balloon;
	int64		hot_buffers;
	int			n = 0;

#define INT8(known, number) \
	do { nulls[n] = !(known); values[n++] = Int64GetDatum(number); } while (0)
#define FLOAT8(known, number) \
	do { nulls[n] = !(known); values[n++] = Float8GetDatum(number); } while (0)
#define TEXT(known, string) \
	do { \
		nulls[n] = !(known); \
		values[n] = nulls[n] ? (Datum) 0 : CStringGetTextDatum(string); \
		n++; \
	} while (0)

	if (balloon == NULL)
		require_usable();
	balloon_last_decision_read(&last);
	LWLockAcquire(balloon->lock, LW_SHARED);
	in_balloon = balloon->nballooned;
	LWLockRelease(balloon->lock);
	measure_residency(&resident, &balloon_resident);
	hot_buffers = (int64) (last.input.hot * Max(0, NBuffers - in_balloon - last.input.unused));

	nulls[n] = false;
	values[n++] = BoolGetDatum(balloon->usable && !balloon->broken);
	TEXT(!balloon->usable || balloon->broken,
		 balloon->broken
		 ? balloon_reason_text(BALLOON_REASON_REFUSED) : balloon->unusable_reason);
	nulls[n] = false;
	values[n++] = BoolGetDatum(balloon_enabled);
	INT8(true, (int64) NBuffers * BLCKSZ);
	INT8(true, in_balloon * BLCKSZ);
	INT8(balloon_target_mb >= 0, (int64) balloon_target_mb * 1024 * 1024);
	INT8(true, balloon_floor() * BLCKSZ);
	INT8(true, balloon_ceiling() * BLCKSZ);
	INT8(resident >= 0, resident);
	INT8(balloon_resident >= 0, balloon_resident);
	INT8(last.observed, hot_buffers * BLCKSZ);
	TEXT(last.observed, memory_source_name(last.source));
	TEXT(last.observed, last.cgroup_path);
	INT8(last.observed, last.input.limit);
	INT8(last.observed, last.input.available);
	FLOAT8(last.observed && last.input.refaults >= 0, last.input.refaults);
	FLOAT8(last.observed, last.input.swapping);
	FLOAT8(last.observed && last.input.stall >= 0, last.input.stall);
	FLOAT8(last.observed, last.input.misses);
	FLOAT8(last.miss_cost > 0, last.miss_cost * 1000);
	TEXT(last.observed || last.reason != BALLOON_REASON_STEADY, balloon_reason_text(last.reason));
	TEXT(last.decided_at != 0,
		 last.decision.action == BALLOON_INFLATE ? "inflated"
		 : last.decision.action == BALLOON_DEFLATE ? "deflated" : "wrote");
	INT8(last.decided_at != 0, last.buffers * BLCKSZ);
	TEXT(last.decided_at != 0, balloon_reason_text(last.decision.reason));
	nulls[n] = last.decided_at == 0;
	values[n++] = TimestampTzGetDatum(last.decided_at);
	nulls[n] = last.worker_pid == 0;
	values[n++] = Int32GetDatum(last.worker_pid);
	return make_row(fcinfo, values, nulls, n);
}

/* pg_balloon_counters(): returns the cumulative counters. */
Datum
pg_balloon_counters(PG_FUNCTION_ARGS)
{
	Datum		values[32];
	bool		nulls[32] = {false};
	BalloonCounters counters;
	int			n = 0;

	if (balloon == NULL)
		require_usable();
	LWLockAcquire(balloon->lock, LW_SHARED);
	counters = balloon->counters;
	LWLockRelease(balloon->lock);
	INT8(true, counters.inflations);
	INT8(true, counters.deflations);
	INT8(true, counters.inflated_unused);
	INT8(true, counters.inflated_clean);
	INT8(true, counters.buffers_written);
	INT8(true, counters.skipped_busy);
	INT8(true, counters.deflated);
	INT8(true, counters.released);
	INT8(true, counters.limit_hits);
	INT8(true, counters.prefetched);
	INT8(true, counters.prefetch_skipped);
	INT8(true, counters.ticks);
	INT8(true, counters.light_ticks);
	INT8(true, counters.inflate_decisions);
	INT8(true, counters.deflate_decisions);
	FLOAT8(true, counters.inflate_time * 1000);
	FLOAT8(true, counters.deflate_time * 1000);
	FLOAT8(true, counters.prefetch_time * 1000);
	nulls[n] = false;
	values[n++] = TimestampTzGetDatum(counters.reset);
	return make_row(fcinfo, values, nulls, n);
}

/* pg_balloon_reset(): sets all counters to zero. */
Datum
pg_balloon_reset(PG_FUNCTION_ARGS)
{
	require_usable();
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	memset(&balloon->counters, 0, sizeof(BalloonCounters));
	balloon->counters.reset = GetCurrentTimestamp();
	LWLockRelease(balloon->lock);
	PG_RETURN_VOID();
}
