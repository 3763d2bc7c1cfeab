/*
 * signals.h
 *		Is memory short? Read from control groups and from the machine.
 *
 * Plain C without server headers, so that it can be tested on captured files
 * (tests/extension/test_signals.py): everything is read below a root
 * directory, which is empty in the server.
 *
 * A server lives in levels: its own control group, its ancestors, the machine.
 * The tightest one decides, that with the least available share of its limit.
 * On a virtual machine the outermost level is the guest: memory that the
 * hypervisor's own balloon takes is missing from MemAvailable.
 *
 * A glance reads only what says what is available, and whether all must be read again.
 *
 * Files are opened once and read again with pread(). In a group above its
 * memory.high every further allocation makes the process wait; reading an open
 * file makes none, so the worker is not throttled by what it looks at.
 */
#ifndef PG_BALLOON_SIGNALS_H
#define PG_BALLOON_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#define SIGNALS_LEVELS 12
#define SIGNALS_PLACE 200

typedef enum SignalSource
{
	SIGNALS_AUTO = 0,			/* version 2 where it has a memory controller, else version 1, else the machine */
	SIGNALS_CGROUP2,
	SIGNALS_CGROUP1,
	SIGNALS_MACHINE
} SignalSource;

/* What a level has said. Counts are since some beginning; memory in bytes. */
typedef struct SignalMemory
{
	int64_t		limit;			/* INT64_MAX: none */
	int64_t		usage;
	int64_t		inactive;		/* page cache not used lately */
	int64_t		active;			/* page cache used lately */
	int64_t		refaults;		/* of the machine: known only while it is the tightest */
	int64_t		anonymous_refaults;
	int64_t		swapped;
	int64_t		unclaimed;		/* used by nobody, not even as page cache; INT64_MAX without a limit */
} SignalMemory;

typedef struct SignalLevel
{
	char		place[SIGNALS_PLACE];	/* directory without the root; "machine" */
	int			source;
	int			fd_limit;		/* -1: there is none */
	int			fd_high;
	int			fd_usage;
	int			fd_stat;
	int			fd_swap;
	SignalMemory memory;
} SignalLevel;

typedef struct SignalReader
{
	int			source;			/* of the levels inside the machine; SIGNALS_MACHINE if there are none */
	int			nlevels;
	SignalLevel levels[SIGNALS_LEVELS]; /* own group first, the machine last */
	int			fd_vmstat;
	int			fd_memory_pressure; /* of the own group, else of the machine */
	int			fd_io_pressure;
	int			fd_any_pressure;	/* for memory, of the machine: of everybody */
	bool		complete;		/* all has been read since it was opened, … */
	int64_t		stalled;		/* … the last time with this in the own group's pressure, … */
	int64_t		any_stalled;	/* … and with this in everybody's; -1: not known, or not asked */
} SignalReader;

/* Counts are since some beginning: take differences. Memory in bytes. */
typedef struct SignalReading
{
	int			tight;			/* index of the tightest level; the rest belongs to it unless it says otherwise */
	int64_t		limit;
	int64_t		available;		/* what everybody together could get without swapping */
	int64_t		reachable;		/* what this server could get, by all levels, others' active page cache left alone */
	int64_t		unclaimed;		/* what this server could get, by all levels, before anything is evicted for it */
	int64_t		refaults;		/* count: pages evicted and needed again */
	int64_t		own_refaults;	/* count, own group: of anonymous and shared memory */
	int64_t		swapped;		/* bytes in swap */
	int64_t		stalled;		/* count, own group: microseconds in which somebody waited for memory or I/O; -1: not known */
} SignalReading;

/* What has changed from a reading to the next one. Per second; memory in bytes. */
typedef struct SignalRates
{
	double		refaults;
	double		own_refaults;
	double		swapping;
	double		stall;			/* share of the time with somebody waiting; -1: not known */
} SignalRates;

extern bool signals_open(SignalReader *reader, const char *root, int source);
extern bool signals_read(SignalReader *reader, bool for_glance, SignalReading *reading);
extern bool signals_glance(SignalReader *reader, SignalReading *reading);
extern void signals_compare(const SignalReading *before, const SignalReading *now, double seconds, double since_glance,
							SignalRates *rates);
extern void signals_close(SignalReader *reader);
extern const char *signal_source_name(int source);

/* The parsers. */
extern int64_t signals_field(const char *text, const char *key);
extern int64_t signals_limit(const char *text);
extern int64_t signals_some_total(const char *text);

#endif							/* PG_BALLOON_SIGNALS_H */
