/*
 * settings.h
 *		The settings below pg_balloon.
 *
 * Written by the server's configuration machinery in each process for itself,
 * read by everybody. What they mean, and in which units, is in settings.c.
 */
#ifndef PG_BALLOON_SETTINGS_H
#define PG_BALLOON_SETTINGS_H

extern bool balloon_enabled;
extern int	balloon_target_mb;
extern int	balloon_floor_mb;
extern int	balloon_floor_per_backend_kb;
extern int	balloon_ceiling_percent;
extern int	balloon_yield_rate;
extern int	balloon_growth_rate;
extern int	balloon_clean_rate;
extern double balloon_reserve_low;
extern double balloon_reserve_high;
extern int	balloon_interval;
extern int	balloon_horizon;
extern int	balloon_source;
extern bool balloon_prefetch;
extern int	balloon_log_level;

/*
 * For tests only, in a library built with COPT=-DPG_BALLOON_INJECTION: the
 * process kills itself in the critical section of the so-many-th buffer that it moves.
 */
#ifdef PG_BALLOON_INJECTION
extern int	balloon_die_after;
#endif

extern void balloon_define_settings(void);
extern void balloon_settings_of_worker(void);

#endif							/* PG_BALLOON_SETTINGS_H */
