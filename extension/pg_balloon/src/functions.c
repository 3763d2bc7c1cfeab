/*
 * functions.c
 *		What SQL can call.
 *
 * Who may call what is set by the extension's script: pg_balloon_status() and the view
 * for pg_monitor, the rest for superusers.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "buffers.h"
#include "checks.h"
#include "floors.h"
#include "inflate.h"
#include "law.h"
#include "report.h"
#include "settings.h"
#include "signals.h"
#include "state.h"

PG_FUNCTION_INFO_V1(pg_balloon_inflate);
PG_FUNCTION_INFO_V1(pg_balloon_deflate);
PG_FUNCTION_INFO_V1(pg_balloon_check);
PG_FUNCTION_INFO_V1(pg_balloon_status);
PG_FUNCTION_INFO_V1(pg_balloon_counters);
PG_FUNCTION_INFO_V1(pg_balloon_reset);

static void
need_usable(void)
{
	if (balloon == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_balloon is not loaded"),
				 errhint("Add it to shared_preload_libraries and restart the server.")));
	if (!balloon->usable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the balloon cannot be used on this server"),
				 errdetail("%s", balloon->why_not)));
}

/* Whole buffers in that many bytes. */
static int64
buffers_of(int64 bytes)
{
	if (bytes < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of bytes must not be negative, but it is %lld", (long long) bytes)));
	return bytes / BLCKSZ;
}

/* pg_balloon_inflate(bytes, write): returns the bytes that were moved into the balloon. */
Datum
pg_balloon_inflate(PG_FUNCTION_ARGS)
{
	int64		buffers = buffers_of(PG_GETARG_INT64(0));

	need_usable();
	PG_RETURN_INT64(balloon_inflate(buffers, PG_GETARG_BOOL(1), false, 0) * BLCKSZ);
}

/* pg_balloon_deflate(bytes): returns the bytes that were given back to the pool. */
Datum
pg_balloon_deflate(PG_FUNCTION_ARGS)
{
	int64		buffers = buffers_of(PG_GETARG_INT64(0));

	need_usable();
	PG_RETURN_INT64(balloon_deflate(buffers) * BLCKSZ);
}

/* pg_balloon_check(): the number of buffers that break a rule; always 0. */
Datum
pg_balloon_check(PG_FUNCTION_ARGS)
{
	need_usable();
	PG_RETURN_INT64(balloon_violations());
}

/* A row with as many columns as the caller's result type. */
static Datum
row(FunctionCallInfo fcinfo, Datum *values, bool *nulls, int n)
{
	TupleDesc	descriptor;

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (descriptor->natts != n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_balloon's library has %d columns where its SQL script has %d; drop the extension and create it again",
						n, descriptor->natts),
				 errhint("If the server has not been restarted since another version was installed, restart it before.")));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
}

Datum
pg_balloon_status(PG_FUNCTION_ARGS)
{
	Datum		values[32];
	bool		nulls[32] = {false};
	BalloonReport report;
	int64		resident;
	int64		stuck;
	int64		in_balloon;
	int			n = 0;

#define NUMBER(known, number) \
	do { nulls[n] = !(known); values[n++] = Int64GetDatum(number); } while (0)
#define REAL(known, number) \
	do { nulls[n] = !(known); values[n++] = Float8GetDatum(number); } while (0)
#define WORDS(known, string) \
	do { nulls[n] = !(known); values[n] = nulls[n] ? (Datum) 0 : CStringGetTextDatum(string); n++; } while (0)

	if (balloon == NULL)
		need_usable();
	balloon_report_read(&report);
	LWLockAcquire(balloon->lock, LW_SHARED);
	in_balloon = balloon->nballooned;
	LWLockRelease(balloon->lock);
	balloon_residency(&resident, &stuck);

	nulls[n] = false;
	values[n++] = BoolGetDatum(balloon->usable && !balloon->broken);
	WORDS(!balloon->usable || balloon->broken,
		  balloon->broken ? balloon_why_text(BALLOON_WHY_REFUSED) : balloon->why_not);
	nulls[n] = false;
	values[n++] = BoolGetDatum(balloon_enabled);
	NUMBER(true, (int64) NBuffers * BLCKSZ);
	NUMBER(true, in_balloon * BLCKSZ);
	NUMBER(balloon_target_mb >= 0, (int64) balloon_target_mb * 1024 * 1024);
	NUMBER(true, balloon_floor() * BLCKSZ);
	NUMBER(true, balloon_ceiling() * BLCKSZ);
	NUMBER(resident >= 0, resident);
	NUMBER(stuck >= 0, stuck);
	NUMBER(report.seen, (int64) (report.view.hot * Max(0, NBuffers - in_balloon - report.view.unused)) * BLCKSZ);
	WORDS(report.seen, signal_source_name(report.source));
	WORDS(report.seen, report.place);
	NUMBER(report.seen, report.view.limit);
	NUMBER(report.seen, report.view.available);
	REAL(report.seen, report.view.refaults);
	REAL(report.seen, report.view.swapping);
	REAL(report.seen && report.view.stall >= 0, report.view.stall);
	REAL(report.seen, report.view.misses);
	REAL(report.miss_cost > 0, report.miss_cost * 1000);
	WORDS(report.seen || report.now != BALLOON_WHY_CALM, balloon_why_text(report.now));
	WORDS(report.when != 0, report.last.act == BALLOON_GIVE ? "inflated" : report.last.act == BALLOON_TAKE ? "deflated" : "wrote");
	NUMBER(report.when != 0, report.done * BLCKSZ);
	WORDS(report.when != 0, balloon_why_text(report.last.why));
	nulls[n] = report.when == 0;
	values[n++] = TimestampTzGetDatum(report.when);
	nulls[n] = report.worker == 0;
	values[n++] = Int32GetDatum(report.worker);
	return row(fcinfo, values, nulls, n);
}

Datum
pg_balloon_counters(PG_FUNCTION_ARGS)
{
	Datum		values[32];
	bool		nulls[32] = {false};
	BalloonCounters counters;
	int			n = 0;

	if (balloon == NULL)
		need_usable();
	LWLockAcquire(balloon->lock, LW_SHARED);
	counters = balloon->counters;
	LWLockRelease(balloon->lock);
	NUMBER(true, counters.inflations);
	NUMBER(true, counters.deflations);
	NUMBER(true, counters.taken_unused);
	NUMBER(true, counters.taken_clean);
	NUMBER(true, counters.written);
	NUMBER(true, counters.busy);
	NUMBER(true, counters.given_back);
	NUMBER(true, counters.punched);
	NUMBER(true, counters.floor_hits);
	NUMBER(true, counters.prefetched);
	NUMBER(true, counters.prefetch_stale);
	NUMBER(true, counters.ticks);
	NUMBER(true, counters.glances);
	NUMBER(true, counters.gives);
	NUMBER(true, counters.takes);
	REAL(true, counters.inflate_time * 1000);
	REAL(true, counters.deflate_time * 1000);
	REAL(true, counters.prefetch_time * 1000);
	nulls[n] = false;
	values[n++] = TimestampTzGetDatum(counters.reset);
	return row(fcinfo, values, nulls, n);
}

/* pg_balloon_reset(): all counters to zero. */
Datum
pg_balloon_reset(PG_FUNCTION_ARGS)
{
	need_usable();
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	memset(&balloon->counters, 0, sizeof(BalloonCounters));
	balloon->counters.reset = GetCurrentTimestamp();
	LWLockRelease(balloon->lock);
	PG_RETURN_VOID();
}
