/*
 * settings.c
 *		The settings below pg_balloon.: defaults, bounds, units.
 *
 * All of them change with a reload.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "settings.h"
#include "signals.h"

bool		balloon_enabled = false;
int			balloon_target_mb = -1;
int			balloon_floor_mb = 32;
int			balloon_floor_per_backend_kb = -1;
int			balloon_ceiling_percent = 90;
int			balloon_yield_rate = 2048;
int			balloon_growth_rate = 1024;
int			balloon_clean_rate = 16;
double		balloon_reserve_low = 2;
double		balloon_reserve_high = 6;
int			balloon_interval = 100;
int			balloon_horizon = 5000;
int			balloon_source = SIGNALS_AUTO;
bool		balloon_prefetch = true;
int			balloon_log_level = LOG;
#ifdef PG_BALLOON_INJECTION
int			balloon_die_after = 0;
#endif

static const struct config_enum_entry source_options[] = {
	{"auto", SIGNALS_AUTO, false},
	{"cgroup2", SIGNALS_CGROUP2, false},
	{"cgroup1", SIGNALS_CGROUP1, false},
	{"machine", SIGNALS_MACHINE, false},
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

void
balloon_define_settings(void)
{
	DefineCustomBoolVariable("pg_balloon.enabled", "Lets the balloon follow the memory of the machine by itself.",
							 "Switched off, everything is given back to the pool once.",
							 &balloon_enabled, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.target", "Size that the balloon is kept at while pg_balloon.enabled is on; -1 finds it by itself.",
							"For an outside manager. Floor and ceiling still hold.",
							&balloon_target_mb, -1, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.floor", "Part of the buffer pool that always stays.",
							NULL,
							&balloon_floor_mb, 32, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.floor_per_backend", "Part of the buffer pool that stays for each process that may pin buffers; -1 works it out.",
							"The greater of this in all and pg_balloon.floor holds.",
							&balloon_floor_per_backend_kb, -1, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.ceiling", "Part of the buffer pool in percent that may be in the balloon.",
							NULL,
							&balloon_ceiling_percent, 90, 0, 99, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.yield_rate", "Memory that is given to the operating system per second at most.",
							NULL,
							&balloon_yield_rate, 2048, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.growth_rate", "Memory that is taken back per second at most.",
							NULL,
							&balloon_growth_rate, 1024, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.clean_rate", "Dirty pages of an idle pool that are written ahead of time per second at most; 0 writes none.",
							NULL,
							&balloon_clean_rate, 16, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomRealVariable("pg_balloon.reserve_low", "Available memory in percent down to which a needy server takes memory back.",
							 NULL,
							 &balloon_reserve_low, 2, 0, 90, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("pg_balloon.reserve_high", "Available memory in percent below which an idle server gives memory.",
							 "Keep it above pg_balloon.reserve_low, or nothing moves from idle to needy servers.",
							 &balloon_reserve_high, 6, 0, 100, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.interval", "Time between two ticks, in each of which the balloon's worker asks what to do.",
							"A tenth of it, at least 10 ms, while something moves and for half a second after; up to four times as long at peace.",
							&balloon_interval, 100, 20, 60000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_balloon.horizon", "Time within which a page must be touched to belong to the working set.",
							NULL,
							&balloon_horizon, 5000, 100, 3600000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_balloon.source", "Where the state of the memory is read.",
							 NULL,
							 &balloon_source, SIGNALS_AUTO, source_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_balloon.prefetch", "Reads evicted pages back when memory has been taken back.",
							 NULL,
							 &balloon_prefetch, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_balloon.log_level", "Level at which decisions are logged.",
							 NULL,
							 &balloon_log_level, LOG, level_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
#ifdef PG_BALLOON_INJECTION
	DefineCustomIntVariable("pg_balloon.die_after", "Buffers that a process moves before it kills itself; 0: it does not.",
							NULL,
							&balloon_die_after, 0, 0, INT_MAX, PGC_SUSET, 0, NULL, NULL, NULL);
#endif
	MarkGUCPrefixReserved("pg_balloon");
}

/*
 * Settings of the server that our workers do not follow, as autovacuum does not: nobody watches them read damaged pages, and a
 * limit on transactions is not meant for what writes the pages of a chunk, however slow the storage is. Once a worker is connected.
 */
void
balloon_settings_of_worker(void)
{
	SetConfigOption("zero_damaged_pages", "false", PGC_SUSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
}
