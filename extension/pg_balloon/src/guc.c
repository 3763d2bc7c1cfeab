/*
 * guc.c
 *		Configuration parameters below pg_balloon.
 *
 * All of them can be changed by a reload.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "guc.h"
#include "memory_signals.h"

bool		balloon_enabled = false;
int			balloon_target_mb = -1;
int			balloon_min_buffers_mb = 32;
int			balloon_min_buffers_per_backend_kb = -1;
int			balloon_max_percent = 90;
int			balloon_max_inflate_rate = 2048;
int			balloon_max_deflate_rate = 1024;
int			balloon_max_writeback_rate = 16;
double		balloon_low_watermark = 2;
double		balloon_high_watermark = 6;
int			balloon_interval = 100;
int			balloon_idle_after = 5000;
int			balloon_memory_source = MEMORY_SOURCE_AUTO;
bool		balloon_prefetch = true;
int			balloon_log_level = LOG;
#ifdef PG_BALLOON_INJECTION
int			balloon_die_after = 0;
#endif

static const struct config_enum_entry source_options[] = {
	{"auto", MEMORY_SOURCE_AUTO, false},
	{"cgroup2", MEMORY_SOURCE_CGROUP2, false},
	{"cgroup1", MEMORY_SOURCE_CGROUP1, false},
	{"system", MEMORY_SOURCE_SYSTEM, false},
	{NULL, 0, false}
};

static const struct config_enum_entry level_options[] = {
	{"debug2", DEBUG2, false},
	{"debug1", DEBUG1, false},
	{"info", INFO, false},
	{"notice", NOTICE, false},
	{"warning", WARNING, false},
	{"log", LOG, false},
	{NULL, 0, false}
};

/* Define all parameters. */
void
balloon_define_gucs(void)
{
	DefineCustomBoolVariable("pg_balloon.enabled",
							"Enables automatic sizing of the balloon.",
							"When it is switched off, all memory returns to the buffer pool "
							"once.",
							&balloon_enabled, false,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.target",
							"Sets a fixed size of the balloon while pg_balloon.enabled is on.",
							"For an external manager. -1 sizes the balloon automatically. "
							"Floor and ceiling still apply.",
							&balloon_target_mb, -1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.min_buffers",
							"Sets the minimum size of the buffer pool outside the balloon.",
							NULL,
							&balloon_min_buffers_mb, 32, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.min_buffers_per_backend",
							"Sets the minimum size of the buffer pool for each process that "
							"may pin buffers.",
							"-1 computes it. The greater of its total and "
							"pg_balloon.min_buffers applies.",
							&balloon_min_buffers_per_backend_kb, -1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.max_balloon_percent",
							"Sets the maximum size of the balloon in percent of the buffer "
							"pool.",
							NULL,
							&balloon_max_percent, 90, 0, 99,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.max_inflate_rate",
							"Sets the maximum rate per second at which memory is released.",
							NULL,
							&balloon_max_inflate_rate, 2048, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.max_deflate_rate",
							"Sets the maximum rate per second at which memory is taken back.",
							NULL,
							&balloon_max_deflate_rate, 1024, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.max_writeback_rate",
							"Sets the maximum rate per second at which an idle pool's dirty "
							"pages are written ahead of time.",
							"0 disables it.",
							&balloon_max_writeback_rate, 16, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomRealVariable("pg_balloon.low_watermark",
							"Sets the available memory in percent down to which a needy server"
							" takes memory back.",
							NULL,
							&balloon_low_watermark, 2, 0, 90,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pg_balloon.high_watermark",
							"Sets the available memory in percent below which an idle server "
							"releases memory.",
							"Keep it above pg_balloon.low_watermark, or no memory moves from "
							"idle to needy servers.",
							&balloon_high_watermark, 6, 0, 100,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.interval",
							"Sets the time between two ticks of the worker.",
							"A tenth of it, at least 10 ms, while buffers move and for half a "
							"second after; up to four times as long without a shortage.",
							&balloon_interval, 100, 20, 60000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.idle_after",
							"Sets the time without access after which a page is idle.",
							NULL,
							&balloon_idle_after, 5000, 100, 3600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_balloon.memory_source",
							"Selects the source of the memory signals.",
							NULL,
							&balloon_memory_source, MEMORY_SOURCE_AUTO, source_options,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_balloon.prefetch",
							"Reads evicted pages back after memory was taken back.",
							NULL,
							&balloon_prefetch, true,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_balloon.log_level",
							"Sets the message level of logged decisions.",
							NULL,
							&balloon_log_level, LOG, level_options,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
#ifdef PG_BALLOON_INJECTION
	DefineCustomIntVariable("pg_balloon.die_after",
							"Sets the number of buffers that a process moves before it kills itself.",
							"0 disables it.",
							&balloon_die_after, 0, 0, INT_MAX, PGC_SUSET, 0, NULL, NULL, NULL);
#endif
	MarkGUCPrefixReserved("pg_balloon");
}

/*
 * Set parameters of the server to fixed values in this extension's workers, as
 * autovacuum does. Damaged pages must not be zeroed where no user sees the
 * warning. A transaction timeout must not end a worker that writes a chunk to
 * slow storage. Call it once the worker is connected.
 */
void
balloon_set_worker_gucs(void)
{
	SetConfigOption("zero_damaged_pages", "false", PGC_SUSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
}
