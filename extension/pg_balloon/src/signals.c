/*
 * signals.c
 *		See signals.h.
 */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "groups.h"

#define NO_LIMIT INT64_MAX
#define V1_NO_LIMIT ((int64_t) 1 << 60) /* version 1 says "none" by a number near 2^63 */
#define TEXT 16384
#define LAST_PIECE 2048			/* bytes: the kernel hands files out in pieces of a page of whole lines, so that a shorter one is the last */

/*
 * The number after a key that begins a line ("key 123" or "key: 123"); -1 if
 * there is no such line.
 */
int64_t
signals_field(const char *text, const char *key)
{
	size_t		length = strlen(key);

	for (const char *line = text; line != NULL && *line; line = strchr(line, '\n'))
	{
		if (*line == '\n')
			line++;
		if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == ':'))
			return strtoll(line + length + 1, NULL, 10);
		if (*line == '\0')
			break;
	}
	return -1;
}

/* A limit in bytes: a number, or "max"; INT64_MAX for none. */
int64_t
signals_limit(const char *text)
{
	int64_t		value;

	if (strncmp(text, "max", 3) == 0)
		return NO_LIMIT;
	value = strtoll(text, NULL, 10);
	return value >= V1_NO_LIMIT ? NO_LIMIT : value;
}

/* Microseconds of "some" in a pressure file; -1 if it has none. */
int64_t
signals_some_total(const char *text)
{
	const char *some = strncmp(text, "some ", 5) == 0 ? text : strstr(text, "\nsome ");
	const char *total = some ? strstr(some, "total=") : NULL;

	return total ? strtoll(total + 6, NULL, 10) : -1;
}

static int
open_in(const char *root, const char *directory, const char *name)
{
	char		path[GROUPS_PATH];

	if (snprintf(path, sizeof(path), "%s%s/%s", root, directory, name) >= (int) sizeof(path))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* An open file up to a piece that is shorter than "last"; false if it cannot be read. */
static bool
read_pieces(int fd, char *text, int size, int last)
{
	int			got = 0;

	if (fd < 0)
		return false;
	while (got < size - 1)
	{
		ssize_t		n = pread(fd, text + got, (size_t) (size - 1 - got), got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		got += (int) n;
		if (n < last)
			break;
	}
	text[got] = '\0';
	return got > 0;
}

/* The whole of a file of signals; to ask for more behind its last piece would have the kernel make all of it again. */
static bool
read_fd(int fd, char *text, int size)
{
	return read_pieces(fd, text, size, LAST_PIECE);
}

static bool
read_once(const char *root, const char *name, char *text, int size)
{
	int			fd = open_in(root, "", name);
	bool		fine = read_pieces(fd, text, size, 1);	/* a line of mounts can be long */

	if (fd >= 0)
		close(fd);
	return fine;
}

static void
close_level(SignalLevel *level)
{
	int		   *fds[] = {&level->fd_limit, &level->fd_high, &level->fd_usage, &level->fd_stat, &level->fd_swap};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
	{
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* Open a group; false if it has no memory controller. */
static bool
open_group(SignalLevel *level, const char *root, const char *directory, int source)
{
	bool		two = source == SIGNALS_CGROUP2;
	size_t		length = strlen(directory);
	size_t		most = sizeof(level->place) - 1;

	memset(level, 0, sizeof(*level));
	level->source = source;
	strcpy(level->place, directory + (length > most ? length - most : 0));
	level->fd_limit = open_in(root, directory, two ? "memory.max" : "memory.limit_in_bytes");
	level->fd_high = two ? open_in(root, directory, "memory.high") : -1;
	level->fd_usage = open_in(root, directory, two ? "memory.current" : "memory.usage_in_bytes");
	level->fd_stat = open_in(root, directory, "memory.stat");
	level->fd_swap = two ? open_in(root, directory, "memory.swap.current") : -1;
	if (level->fd_limit >= 0 && level->fd_usage >= 0 && level->fd_stat >= 0)
		return true;
	close_level(level);
	return false;
}

/* Open the own group of a version and its ancestors, the own one first. Returns how many have a memory controller. */
static int
open_groups(SignalReader *reader, const char *root, int source)
{
	static char cgroup[TEXT];
	static char mountinfo[4 * TEXT];
	int			version = source == SIGNALS_CGROUP2 ? 2 : 1;
	char		group[GROUPS_PATH];
	char		mount[GROUPS_PATH];
	char		within[GROUPS_PATH];
	char		directory[2 * GROUPS_PATH];
	char		own[2 * GROUPS_PATH] = ""; /* of the first level; its place may be cut off */
	const char *below = group;
	size_t		mount_length;
	size_t		within_length;

	if (!read_once(root, "/proc/self/cgroup", cgroup, sizeof(cgroup)) ||
		!read_once(root, "/proc/self/mountinfo", mountinfo, sizeof(mountinfo)) ||
		!groups_own(cgroup, version, group, sizeof(group)) ||
		!groups_mount(mountinfo, version, mount, within, sizeof(mount)))
		return 0;

	/* What lies above the mount's own root cannot be seen. */
	within_length = strcmp(within, "/") == 0 ? 0 : strlen(within);
	if (strncmp(group, within, within_length) == 0 && (group[within_length] == '/' || group[within_length] == '\0'))
		below = group + within_length;
	snprintf(directory, sizeof(directory), "%s%s", mount, strcmp(below, "/") == 0 ? "" : below);
	mount_length = strlen(mount);
	for (;;)
	{
		char	   *slash;

		if (reader->nlevels < SIGNALS_LEVELS - 1 &&
			open_group(&reader->levels[reader->nlevels], root, directory, source) &&
			reader->nlevels++ == 0)
			strcpy(own, directory);
		slash = strrchr(directory, '/');
		if (strlen(directory) <= mount_length || slash == NULL)
			break;
		*slash = '\0';
		if (strlen(directory) < mount_length)
			break;
	}

	/* Version 2 keeps pressure for each group, also for one whose memory controller is version 1's. */
	if (reader->nlevels > 0 && version == 2)
	{
		reader->fd_memory_pressure = open_in(root, own, "memory.pressure");
		reader->fd_io_pressure = open_in(root, own, "io.pressure");
	}
	else if (reader->nlevels > 0 && groups_own(cgroup, 2, group, sizeof(group)) && strcmp(group, "/") != 0 &&
			 groups_mount(mountinfo, 2, mount, within, sizeof(mount)) && strcmp(within, "/") == 0)
	{
		snprintf(directory, sizeof(directory), "%s%s", mount, group);
		reader->fd_memory_pressure = open_in(root, directory, "memory.pressure");
		reader->fd_io_pressure = open_in(root, directory, "io.pressure");
	}
	return reader->nlevels;
}

/*
 * Find and open what there is. Returns false if the source that was asked for
 * is not there, or if not even /proc/meminfo is; then nothing is open.
 */
bool
signals_open(SignalReader *reader, const char *root, int source)
{
	SignalLevel *machine;

	memset(reader, 0, sizeof(*reader));
	reader->fd_vmstat = reader->fd_memory_pressure = reader->fd_io_pressure = reader->fd_any_pressure = -1;
	reader->source = SIGNALS_MACHINE;
	if ((source == SIGNALS_AUTO || source == SIGNALS_CGROUP2) && open_groups(reader, root, SIGNALS_CGROUP2) > 0)
		reader->source = SIGNALS_CGROUP2;
	else if ((source == SIGNALS_AUTO || source == SIGNALS_CGROUP1) && open_groups(reader, root, SIGNALS_CGROUP1) > 0)
		reader->source = SIGNALS_CGROUP1;

	machine = &reader->levels[reader->nlevels++];
	memset(machine, 0, sizeof(*machine));
	machine->source = SIGNALS_MACHINE;
	strcpy(machine->place, "machine");
	machine->fd_limit = machine->fd_high = machine->fd_usage = machine->fd_swap = -1;
	machine->fd_stat = open_in(root, "/proc", "meminfo");
	reader->fd_vmstat = open_in(root, "/proc", "vmstat");
	reader->fd_any_pressure = open_in(root, "/proc/pressure", "memory");
	if (reader->fd_memory_pressure < 0)
		reader->fd_memory_pressure = open_in(root, "/proc/pressure", "memory");
	if (reader->fd_io_pressure < 0)
		reader->fd_io_pressure = open_in(root, "/proc/pressure", "io");
	if (machine->fd_stat < 0 || (source != SIGNALS_AUTO && source != reader->source))
	{
		signals_close(reader);
		return false;
	}
	return true;
}

void
signals_close(SignalReader *reader)
{
	int		   *fds[] = {&reader->fd_vmstat, &reader->fd_memory_pressure, &reader->fd_io_pressure, &reader->fd_any_pressure};

	for (int i = 0; i < reader->nlevels; i++)
		close_level(&reader->levels[i]);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
	{
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	reader->nlevels = 0;
}

static int64_t
or_zero(int64_t value)
{
	return value < 0 ? 0 : value;
}

/* Microseconds of "some" in an open pressure file; -1 if they are not known. */
static int64_t
read_pressure(int fd)
{
	static char text[TEXT];

	return read_fd(fd, text, sizeof(text)) ? signals_some_total(text) : -1;
}

/* What a group says in files of one number each. */
static bool
read_numbers(const SignalLevel *level, SignalMemory *out)
{
	static char text[TEXT];
	int64_t		high;

	if (!read_fd(level->fd_limit, text, sizeof(text)))
		return false;
	out->limit = signals_limit(text);
	if (read_fd(level->fd_high, text, sizeof(text)) && (high = signals_limit(text)) < out->limit)
		out->limit = high;
	if (!read_fd(level->fd_usage, text, sizeof(text)))
		return false;
	out->usage = strtoll(text, NULL, 10);
	out->unclaimed = out->limit == NO_LIMIT ? NO_LIMIT : out->limit - out->usage;
	if (read_fd(level->fd_swap, text, sizeof(text)))
		out->swapped = strtoll(text, NULL, 10);
	return true;
}

/* What it says in its table of all kinds of memory. */
static bool
read_stat(const SignalLevel *level, SignalMemory *out)
{
	static char text[TEXT];
	bool		two = level->source == SIGNALS_CGROUP2;

	if (!read_fd(level->fd_stat, text, sizeof(text)))
		return false;
	out->inactive = or_zero(signals_field(text, two ? "inactive_file" : "total_inactive_file"));
	out->active = or_zero(signals_field(text, two ? "active_file" : "total_active_file"));
	out->anonymous_refaults = or_zero(signals_field(text, two ? "workingset_refault_anon" : "total_workingset_refault_anon"));
	out->refaults = out->anonymous_refaults +
		or_zero(signals_field(text, two ? "workingset_refault_file" : "total_workingset_refault_file"));
	if (!two)
		out->swapped = or_zero(signals_field(text, "total_swap"));
	return true;
}

/* What the machine says, but for its refaults. */
static bool
read_machine(const SignalLevel *level, SignalMemory *out)
{
	static char text[TEXT];
	int64_t		available;

	if (!read_fd(level->fd_stat, text, sizeof(text)))
		return false;
	out->limit = signals_field(text, "MemTotal") * 1024;
	available = signals_field(text, "MemAvailable");
	if (out->limit <= 0 || available < 0)
		return false;
	out->active = or_zero(signals_field(text, "Active(file)")) * 1024;
	out->inactive = 0;
	/* The kernel counts as available what it can drop of the active page cache too; usage is what is then left. */
	if (out->active > available * 1024)
		out->active = available * 1024;
	out->usage = out->limit - available * 1024 + out->active;
	out->unclaimed = or_zero(signals_field(text, "MemFree")) * 1024;
	out->swapped = (or_zero(signals_field(text, "SwapTotal")) - or_zero(signals_field(text, "SwapFree"))) * 1024;
	return true;
}

/* The machine's refaults: the longest table of all. */
static void
read_vmstat(const SignalReader *reader, SignalMemory *out)
{
	static char text[TEXT];

	out->refaults = out->anonymous_refaults = 0;
	if (read_fd(reader->fd_vmstat, text, sizeof(text)))
	{
		out->anonymous_refaults = or_zero(signals_field(text, "workingset_refault_anon"));
		out->refaults = out->anonymous_refaults + or_zero(signals_field(text, "workingset_refault_file"));
	}
}

/* What everybody could get below the level's limit. */
static int64_t
available_in(const SignalMemory *memory)
{
	return memory->limit - memory->usage + memory->inactive + memory->active;
}

/* The level with the least available share of its limit; -1 if none has a limit. */
static int
tightest(const SignalReader *reader)
{
	double		least = 0;
	int			tight = -1;

	for (int i = 0; i < reader->nlevels; i++)
	{
		const SignalMemory *memory = &reader->levels[i].memory;
		double		share;

		if (memory->limit == NO_LIMIT || memory->limit <= 0)
			continue;
		share = (double) available_in(memory) / (double) memory->limit;
		if (tight < 0 || share < least)
		{
			least = share;
			tight = i;
		}
	}
	return tight;
}

/* What all levels together come to. Returns false if none has a limit. */
static bool
sum_up(const SignalReader *reader, SignalReading *reading)
{
	const SignalMemory *own = &reader->levels[0].memory;

	memset(reading, 0, sizeof(*reading));
	reading->tight = tightest(reader);
	reading->reachable = reading->unclaimed = NO_LIMIT;
	reading->own_refaults = own->anonymous_refaults;
	reading->stalled = reader->stalled;
	for (int i = 0; i < reader->nlevels; i++)
	{
		const SignalMemory *memory = &reader->levels[i].memory;
		int64_t		reachable;

		if (memory->limit == NO_LIMIT || memory->limit <= 0)
			continue;
		reachable = memory->limit - memory->usage + memory->inactive + (own->active < memory->active ? own->active : memory->active);
		if (reachable < reading->reachable)
			reading->reachable = reachable;
		if (memory->unclaimed < reading->unclaimed)
			reading->unclaimed = memory->unclaimed;
		if (i == reading->tight)
		{
			reading->limit = memory->limit;
			reading->available = available_in(memory);
			reading->refaults = memory->refaults;
			reading->swapped = memory->swapped;
		}
	}
	return reading->tight >= 0;
}

/*
 * Read all levels. Returns false if one cannot be read any more: close, and open anew.
 *
 * Everybody's pressure is read only to be compared by a glance, for the kernel loses part of it by being asked: it sums up since anybody
 * asked last, each CPU's waiting by the clock ticks in which that CPU was busy, rounded down. It is read before all else, so that whoever
 * waits after the first level has been read is seen by the glance.
 */
bool
signals_read(SignalReader *reader, bool for_glance, SignalReading *reading)
{
	SignalLevel *machine = &reader->levels[reader->nlevels - 1];
	int64_t		memory;
	int64_t		io;

	reader->complete = false;
	reader->any_stalled = for_glance ? read_pressure(reader->fd_any_pressure) : -1;
	for (int i = 0; i < reader->nlevels - 1; i++)
	{
		SignalLevel *level = &reader->levels[i];

		if (!read_numbers(level, &level->memory) || !read_stat(level, &level->memory))
			return false;
	}
	if (!read_machine(machine, &machine->memory))
		return false;
	if (tightest(reader) == reader->nlevels - 1)
		read_vmstat(reader, &machine->memory);	/* nobody asks for them otherwise */
	memory = read_pressure(reader->fd_memory_pressure);
	io = read_pressure(reader->fd_io_pressure);
	reader->stalled = memory < 0 && io < 0 ? -1 : or_zero(memory) + or_zero(io);
	reader->complete = true;
	return sum_up(reader, reading);
}

static void
lose_cache(SignalMemory *memory, int64_t bytes)
{
	int64_t		cache = memory->inactive + memory->active;
	int64_t		left = bytes < 0 ? cache : bytes < cache ? cache - bytes : 0;

	memory->active = memory->active < left ? memory->active : left;
	memory->inactive = left - memory->active;
}

/*
 * Read only what is cheap, and take the rest as it was when all was read: the page cache of groups, refaults, the time stalled.
 * Returns false if all must be read to know: it has not been yet, or not for a glance, a limit has changed, something has been swapped out, or anybody
 * on the machine has waited for memory. Page cache is given up to whoever needs memory while he waits; what else there was of it is
 * still there, or is missing from the usage. So what a group uses less is taken to have been page cache.
 */
bool
signals_glance(SignalReader *reader, SignalReading *reading)
{
	if (!reader->complete || reader->any_stalled < 0 || read_pressure(reader->fd_any_pressure) != reader->any_stalled)
		return false;
	for (int i = 0; i < reader->nlevels; i++)
	{
		SignalLevel *level = &reader->levels[i];
		SignalMemory before = level->memory;

		if (!(level->source == SIGNALS_MACHINE ? read_machine(level, &level->memory) : read_numbers(level, &level->memory)) ||
			level->memory.limit != before.limit || level->memory.swapped > before.swapped)
			return false;
		if (level->source != SIGNALS_MACHINE)
			lose_cache(&level->memory, before.usage - level->memory.usage);
	}
	return sum_up(reader, reading);
}

static double
growth(int64_t before, int64_t now)
{
	return now > before ? (double) (now - before) : 0;
}

/*
 * What has changed since a reading of the same level, that many seconds ago; without one (NULL) nothing is known. A glance finds nothing
 * swapped out, so that what is found after glances has been since the last of them: within since_glance, if that is less.
 */
void
signals_compare(const SignalReading *before, const SignalReading *now, double seconds, double since_glance, SignalRates *rates)
{
	double		share;

	rates->refaults = rates->own_refaults = rates->swapping = 0;
	rates->stall = -1;
	if (before == NULL || before->tight != now->tight)
		return;					/* counts of another level are other counts */
	rates->refaults = growth(before->refaults, now->refaults) / seconds;
	rates->own_refaults = growth(before->own_refaults, now->own_refaults) / seconds;
	rates->swapping = growth(before->swapped, now->swapped) / (since_glance < seconds ? since_glance : seconds);
	if (before->stalled < 0 || now->stalled < 0)
		return;
	share = growth(before->stalled, now->stalled) / (seconds * 1e6);
	rates->stall = share < 1.0 ? share : 1.0;
}

const char *
signal_source_name(int source)
{
	switch (source)
	{
		case SIGNALS_CGROUP2:
			return "cgroup2";
		case SIGNALS_CGROUP1:
			return "cgroup1";
		case SIGNALS_MACHINE:
			return "machine";
	}
	return "auto";
}
