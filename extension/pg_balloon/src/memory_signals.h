/*
 * memory_signals.h
 *		Memory limits, usage and pressure from cgroups and /proc.
 *
 * Plain C without server headers, so that it can be tested on captured files.
 * All paths are below a root directory, which is empty in the server.
 *
 * A server runs inside nested levels: the own cgroup, the ancestors, the
 * system. The tightest level, with the smallest available share of its limit,
 * decides. In a virtual machine the system is the guest: memory that the
 * hypervisor's balloon takes is missing from MemAvailable.
 *
 * A light read covers only the available memory, and whether a full read is
 * necessary.
 *
 * Files are opened once and read with pread(). In a cgroup above its
 * memory.high, each further allocation delays the process. Reading an open
 * file allocates nothing, so the worker is not throttled.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_MEMORY_SIGNALS_H
#define PG_BALLOON_MEMORY_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#define MEMORY_SIGNALS_LEVELS 32
#define MEMORY_SIGNALS_PATH 200
/* Maximum number of open files. */
#define MEMORY_SIGNALS_FILES (5 * MEMORY_SIGNALS_LEVELS + 4)

typedef enum MemorySource
{
	/* cgroup version 2 with a memory controller, or version 1, or the system */
	MEMORY_SOURCE_AUTO = 0,
	MEMORY_SOURCE_CGROUP2,
	MEMORY_SOURCE_CGROUP1,
	MEMORY_SOURCE_SYSTEM
} MemorySource;

/* Values of one level. Counts are cumulative. Memory in bytes. */
typedef struct LevelMemory
{
	int64_t		limit;			/* INT64_MAX: none */
	int64_t		usage;
	int64_t		inactive;		/* page cache, not used recently */
	int64_t		active;			/* page cache, used recently */
	/* -1: not counted by the kernel; of the system: read only while it is the tightest */
	int64_t		refaults;
	int64_t		anonymous_refaults;
	int64_t		swapped;
	int64_t		unclaimed;		/* free, not even page cache; INT64_MAX without a limit */
} LevelMemory;

typedef struct MemoryLevel
{
	char		path[MEMORY_SIGNALS_PATH];	/* directory without the root, or "system" */
	int			source;
	int			fd_limit;		/* -1: missing */
	int			fd_high;
	int			fd_usage;
	int			fd_stat;
	int			fd_swap;
	LevelMemory memory;
	int64_t		limit_before;	/* at the last full read; 0: there was none */
	int64_t		limit_fall;		/* bytes, since the read before */
} MemoryLevel;

typedef struct MemorySignalReader
{
	/* of the levels below the system; MEMORY_SOURCE_SYSTEM without any */
	int			source;
	int			nlevels;
	MemoryLevel levels[MEMORY_SIGNALS_LEVELS];	/* own cgroup first, the system last */
	int			fd_vmstat;
	int			fd_memory_pressure;	/* of the own cgroup, or of the system */
	int			fd_io_pressure;
	int			fd_any_pressure;	/* memory pressure of the whole system */
	bool		complete;		/* a full read has succeeded since opening */
	int64_t		stalled;		/* own cgroup's pressure at the last full read */
	/* system-wide pressure at the last full read; -1: unknown, or not read */
	int64_t		any_stalled;
	int			error;			/* errno if a file could not be opened; 0: none */
	bool		outside;		/* the mounted cgroups do not show the path of the own one */
	/* the watermarks, as shares of each level's limit; set by the caller before a read */
	double		low_watermark;
	double		high_watermark;
} MemorySignalReader;

/* Values of all levels combined. Counts are cumulative. Memory in bytes. */
typedef struct MemorySignals
{
	/* index of the tightest level, to which the other values belong by default */
	int			tight;
	int64_t		limit;
	int64_t		available;		/* available to all processes below the limit, without swapping */
	/*
	 * available to this server, by all levels, without active page cache of
	 * others; to be compared with the low watermark, see combine_levels()
	 */
	int64_t		reachable;
	int64_t		reachable_high; /* the same for the high watermark */
	/* ... before the kernel evicts anything, for the high watermark */
	int64_t		unclaimed;
	int64_t		refaults;		/* count: pages evicted and read again; -1: unknown */
	/* count, own cgroup: refaults of anonymous and shared memory; -1: unknown */
	int64_t		own_refaults;
	int64_t		swapped;		/* bytes in swap */
	/* count, own cgroup: microseconds with a task waiting for memory or I/O; -1: unknown */
	int64_t		stalled;
	int64_t		limit_fall;		/* bytes by which the limit is lower than at the read before */
} MemorySignals;

extern bool memory_signals_open(MemorySignalReader *reader, const char *root, int source);
extern bool memory_signals_read(MemorySignalReader *reader, bool for_light_read,
								MemorySignals *reading);
extern bool memory_signals_light_read(MemorySignalReader *reader, MemorySignals *reading);
extern void memory_signals_close(MemorySignalReader *reader);
extern int	memory_signals_files(const MemorySignalReader *reader);
extern const char *memory_source_name(int source);

#endif							/* PG_BALLOON_MEMORY_SIGNALS_H */
