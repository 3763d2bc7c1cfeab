/*
 * guc.h
 *		Configuration parameters below pg_balloon.
 *
 * The server sets them in each process. guc.c has units, ranges and defaults.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_GUC_H
#define PG_BALLOON_GUC_H

extern bool balloon_enabled;
extern int	balloon_target_mb;
extern int	balloon_min_buffers_mb;
extern int	balloon_min_buffers_per_backend_kb;
extern int	balloon_max_percent;
extern int	balloon_max_inflate_rate;
extern int	balloon_max_deflate_rate;
extern int	balloon_max_writeback_rate;
extern double balloon_low_watermark;
extern double balloon_high_watermark;
extern int	balloon_interval;
extern int	balloon_idle_after;
extern int	balloon_memory_source;
extern bool balloon_prefetch;
extern int	balloon_log_level;

/*
 * For tests only, in a library built with COPT=-DPG_BALLOON_INJECTION: the
 * process kills itself in the critical section of the Nth buffer that it
 * moves.
 */
#ifdef PG_BALLOON_INJECTION
extern int	balloon_die_after;
#endif

extern void balloon_define_gucs(void);
extern void balloon_set_worker_gucs(void);

#endif							/* PG_BALLOON_GUC_H */
