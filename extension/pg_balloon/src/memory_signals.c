/*
 * memory_signals.c
 *		Memory limits, usage and pressure from cgroups and /proc.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "memory_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel_text.h"

#define TEXT 16384
/*
 * Bytes. The kernel returns these files in pieces of whole lines, each about
 * a page long, so a shorter piece is the last one.
 */
#define LAST_PIECE 2048

/*
 * Open a file below the root. Returns -1 if it cannot be opened.
 *
 * A missing file is normal: the kernel or the cgroup does not have it. Any
 * other failure is stored in the reader, because what was not read must not
 * look like no limit. Only a lack of resources counts for an optional file.
 */
static int
open_in(MemorySignalReader *reader, const char *root, const char *directory, const char *name,
		bool optional)
{
	char		path[CGROUP_PATH_SIZE];
	int			fd = -1;

	errno = ENAMETOOLONG;
	if (snprintf(path, sizeof(path), "%s%s/%s", root, directory, name) < (int) sizeof(path))
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT && errno != ENOTDIR &&
		(!optional || errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		reader->error = errno;
	return fd;
}

/*
 * Read an open file until a piece is shorter than "last". Returns false if it
 * cannot be read.
 */
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

/*
 * Read a whole file of signals. Reading beyond its last piece would make the
 * kernel format the file a second time.
 */
static bool
read_fd(int fd, char *text, int size)
{
	return read_pieces(fd, text, size, LAST_PIECE);
}

/* Read a file below the root. Returns false if it cannot be read. */
static bool
read_once(MemorySignalReader *reader, const char *root, const char *name, char *text, int size)
{
	int			fd = open_in(reader, root, "", name, false);
	bool		fine = read_pieces(fd, text, size, 1);	/* a line of mountinfo can be long */

	if (fd >= 0)
		close(fd);
	return fine;
}

/* Close a level's files. */
static void
close_level(MemoryLevel *level)
{
	int		   *fds[] = {&level->fd_limit, &level->fd_high, &level->fd_usage, &level->fd_stat,
	&level->fd_swap};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
	{
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* Open the files of a cgroup. Returns false if it has no memory controller. */
static bool
open_group(MemorySignalReader *reader, MemoryLevel *level, const char *root,
		   const char *directory, int source)
{
	bool		version2 = source == MEMORY_SOURCE_CGROUP2;
	size_t		length = strlen(directory);
	size_t		most = sizeof(level->path) - 1;

	memset(level, 0, sizeof(*level));
	level->source = source;
	strcpy(level->path, directory + (length > most ? length - most : 0));
	level->fd_limit = open_in(reader, root, directory,
							  version2 ? "memory.max" : "memory.limit_in_bytes", false);
	level->fd_high = version2
		? open_in(reader, root, directory, "memory.high", false) : -1;
	level->fd_usage = open_in(reader, root, directory,
							  version2 ? "memory.current" : "memory.usage_in_bytes", false);
	level->fd_stat = open_in(reader, root, directory, "memory.stat", false);
	level->fd_swap = version2
		? open_in(reader, root, directory, "memory.swap.current", false) : -1;
	if (level->fd_limit >= 0 && level->fd_usage >= 0 && level->fd_stat >= 0)
		return true;
	close_level(level);
	return false;
}

/*
 * Open the own cgroup of a version and its ancestors, the own one first.
 * Returns how many of them have a memory controller.
 */
static int
open_groups(MemorySignalReader *reader, const char *root, int source)
{
	static char cgroup[TEXT];
	static char mountinfo[4 * TEXT];
	int			version = source == MEMORY_SOURCE_CGROUP2 ? 2 : 1;
	char		group[CGROUP_PATH_SIZE];
	char		mount[CGROUP_PATH_SIZE];
	char		mount_root[CGROUP_PATH_SIZE];
	char		directory[2 * CGROUP_PATH_SIZE];
	/* of the first level, whose path may be truncated */
	char		own[2 * CGROUP_PATH_SIZE] = "";
	const char *below;
	size_t		mount_length;
	size_t		mount_root_length;

	if (!read_once(reader, root, "/proc/self/cgroup", cgroup, sizeof(cgroup)) ||
		!read_once(reader, root, "/proc/self/mountinfo", mountinfo, sizeof(mountinfo)) ||
		!cgroup_path_of_process(cgroup, version, group, sizeof(group)))
		return 0;
	if (!cgroup_mount(mountinfo, version, mount, mount_root, sizeof(mount)))
	{
		if (strlen(mountinfo) == sizeof(mountinfo) - 1)
			reader->error = EFBIG;	/* the mount may follow what was read */
		return 0;
	}

	/*
	 * A mount of an outer cgroup namespace shows its root as "/..", and so does
	 * the own cgroup if the process was moved out of its namespace. It has no
	 * name here, nor has a cgroup to which it was moved from that of the mount.
	 */
	mount_root_length = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
	if (strncmp(mount_root, "/..", 3) == 0 || strncmp(group, mount_root, mount_root_length) != 0 ||
		(group[mount_root_length] != '/' && group[mount_root_length] != '\0') ||
		strcmp(group, "/..") == 0 || strncmp(group, "/../", 4) == 0)
	{
		reader->outside = true;
		return 0;
	}

	/* Ancestors above the root of the mount are not visible. */
	below = group + mount_root_length;
	snprintf(directory, sizeof(directory), "%s%s", mount, strcmp(below, "/") == 0 ? "" : below);
	mount_length = strlen(mount);
	for (;;)
	{
		char	   *slash;

		if (reader->nlevels == MEMORY_SIGNALS_LEVELS - 1)
			reader->error = ENAMETOOLONG;	/* a level that is not read could be the tightest */
		else if (open_group(reader, &reader->levels[reader->nlevels], root, directory, source) &&
				 reader->nlevels++ == 0)
			strcpy(own, directory);
		slash = strrchr(directory, '/');
		if (strlen(directory) <= mount_length || slash == NULL)
			break;
		*slash = '\0';
		if (strlen(directory) < mount_length)
			break;
	}

	/*
	 * Only version 2 keeps pressure for each cgroup, even if version 1 has the
	 * memory controller.
	 */
	if (reader->nlevels > 0 && version == 2)
	{
		reader->fd_memory_pressure = open_in(reader, root, own, "memory.pressure", true);
		reader->fd_io_pressure = open_in(reader, root, own, "io.pressure", true);
	}
	else if (reader->nlevels > 0 &&
			 cgroup_path_of_process(cgroup, 2, group, sizeof(group)) && strcmp(group, "/") != 0 &&
			 cgroup_mount(mountinfo, 2, mount, mount_root, sizeof(mount)) &&
			 strcmp(mount_root, "/") == 0)
	{
		snprintf(directory, sizeof(directory), "%s%s", mount, group);
		reader->fd_memory_pressure = open_in(reader, root, directory, "memory.pressure", true);
		reader->fd_io_pressure = open_in(reader, root, directory, "io.pressure", true);
	}
	return reader->nlevels;
}

/*
 * Open the memory signals. Returns false, with no file open, if the requested
 * source or /proc/meminfo is missing, if the own cgroup's path is not visible
 * (reader->outside), or if a file could not be opened for another reason
 * (reader->error).
 */
bool
memory_signals_open(MemorySignalReader *reader, const char *root, int source)
{
	MemorySignalReader before = *reader;
	MemoryLevel *system;

	memset(reader, 0, sizeof(*reader));
	reader->fd_vmstat = reader->fd_any_pressure = -1;
	reader->fd_memory_pressure = reader->fd_io_pressure = -1;
	reader->source = MEMORY_SOURCE_SYSTEM;
	if ((source == MEMORY_SOURCE_AUTO || source == MEMORY_SOURCE_CGROUP2) &&
		open_groups(reader, root, MEMORY_SOURCE_CGROUP2) > 0)
		reader->source = MEMORY_SOURCE_CGROUP2;
	else if ((source == MEMORY_SOURCE_AUTO || source == MEMORY_SOURCE_CGROUP1) &&
			 open_groups(reader, root, MEMORY_SOURCE_CGROUP1) > 0)
	{
		reader->source = MEMORY_SOURCE_CGROUP1;
		reader->outside = false;	/* of version 2, which has no memory controller here */
		if (reader->error == EFBIG)
			reader->error = 0;
	}

	system = &reader->levels[reader->nlevels++];
	memset(system, 0, sizeof(*system));
	system->source = MEMORY_SOURCE_SYSTEM;
	strcpy(system->path, "system");
	/* a limit may fall while its file is reopened */
	for (int i = 0; i < reader->nlevels; i++)
		if (strcmp(reader->levels[i].path, before.levels[i].path) == 0)
			reader->levels[i].limit_before = before.levels[i].limit_before;
	system->fd_limit = system->fd_high = system->fd_usage = system->fd_swap = -1;
	system->fd_stat = open_in(reader, root, "/proc", "meminfo", false);
	reader->fd_vmstat = open_in(reader, root, "/proc", "vmstat", true);
	reader->fd_any_pressure = open_in(reader, root, "/proc/pressure", "memory", true);
	if (reader->fd_memory_pressure < 0)
		reader->fd_memory_pressure = open_in(reader, root, "/proc/pressure", "memory", true);
	if (reader->fd_io_pressure < 0)
		reader->fd_io_pressure = open_in(reader, root, "/proc/pressure", "io", true);
	if (system->fd_stat < 0 || reader->error != 0 || reader->outside ||
		(source != MEMORY_SOURCE_AUTO && source != reader->source))
	{
		memory_signals_close(reader);
		return false;
	}
	return true;
}

/* Close all files. */
void
memory_signals_close(MemorySignalReader *reader)
{
	int		   *fds[] = {&reader->fd_vmstat, &reader->fd_memory_pressure,
	&reader->fd_io_pressure, &reader->fd_any_pressure};

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

/* Return the microseconds of "some" in an open pressure file, or -1. */
static int64_t
read_pressure(int fd)
{
	static char text[TEXT];

	return read_fd(fd, text, sizeof(text)) ? kernel_some_total(text) : -1;
}

/* Read limit, usage and swap of a cgroup: files of one number each. */
static bool
read_numbers(const MemoryLevel *level, LevelMemory *out)
{
	static char text[TEXT];
	int64_t		high;

	if (!read_fd(level->fd_limit, text, sizeof(text)))
		return false;
	out->limit = kernel_limit(text);
	if (read_fd(level->fd_high, text, sizeof(text)) &&
		(high = kernel_limit(text)) < out->limit)
		out->limit = high;
	if (out->limit < 1)
		out->limit = 1;			/* 0, which reclaims everything, is a limit */
	if (!read_fd(level->fd_usage, text, sizeof(text)))
		return false;
	out->usage = strtoll(text, NULL, 10);
	out->unclaimed = out->limit == NO_LIMIT ? NO_LIMIT : out->limit - out->usage;
	if (read_fd(level->fd_swap, text, sizeof(text)))
		out->swapped = strtoll(text, NULL, 10);
	return true;
}

/* Read page cache, refaults and swap of a cgroup from memory.stat. */
static bool
read_stat(const MemoryLevel *level, LevelMemory *out)
{
	static char text[TEXT];
	bool		version2 = level->source == MEMORY_SOURCE_CGROUP2;

	if (!read_fd(level->fd_stat, text, sizeof(text)))
		return false;
	out->inactive = kernel_field_or_zero(text, version2 ? "inactive_file" : "total_inactive_file");
	out->active = kernel_field_or_zero(text, version2 ? "active_file" : "total_active_file");
	kernel_refaults(text, version2 ? "" : "total_", &out->refaults, &out->anonymous_refaults);
	if (!version2)
		out->swapped = kernel_field_or_zero(text, "total_swap");
	return true;
}

/* Read the system's memory from /proc/meminfo. */
static bool
read_system(const MemoryLevel *level, LevelMemory *out)
{
	static char text[TEXT];
	int64_t		available;

	if (!read_fd(level->fd_stat, text, sizeof(text)))
		return false;
	out->limit = kernel_field(text, "MemTotal") * 1024;
	available = kernel_field(text, "MemAvailable");
	if (out->limit <= 0 || available < 0)
		return false;
	out->active = kernel_field_or_zero(text, "Active(file)") * 1024;
	out->inactive = 0;
	/*
	 * MemAvailable includes active page cache that the kernel can drop. The
	 * usage counts it, as in a cgroup.
	 */
	if (out->active > available * 1024)
		out->active = available * 1024;
	out->usage = out->limit - available * 1024 + out->active;
	out->unclaimed = kernel_field_or_zero(text, "MemFree") * 1024;
	out->swapped = (kernel_field_or_zero(text, "SwapTotal") -
					kernel_field_or_zero(text, "SwapFree")) * 1024;
	return true;
}

/* Read the system's refaults from /proc/vmstat, the longest file of all. */
static void
read_vmstat(const MemorySignalReader *reader, LevelMemory *out)
{
	static char text[TEXT];

	out->refaults = out->anonymous_refaults = -1;
	if (read_fd(reader->fd_vmstat, text, sizeof(text)))
		kernel_refaults(text, "", &out->refaults, &out->anonymous_refaults);
}

/* Return the bytes that all processes below the limit could still get. */
static int64_t
available_in(const LevelMemory *memory)
{
	return memory->limit - memory->usage + memory->inactive + memory->active;
}

/*
 * Return the index of the level with the smallest available share of its
 * limit, or -1 without any limit.
 */
static int
tightest(const MemorySignalReader *reader)
{
	double		least = 0;
	int			tight = -1;

	for (int i = 0; i < reader->nlevels; i++)
	{
		const LevelMemory *memory = &reader->levels[i].memory;
		double		share;

		if (memory->limit == NO_LIMIT)
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

/* Reduce *least to what a level leaves above a share of its limit. */
static void
leave(int64_t *least, int64_t bytes, double share, const LevelMemory *memory)
{
	int64_t		above = bytes - (int64_t) ((double) memory->limit * share);

	*least = above < *least ? above : *least;
}

/*
 * Combine the levels into one set of signals. Returns false without any limit.
 *
 * The caller compares memory with a watermark, a share of the tightest level's
 * limit. Each level keeps that share of its own limit:
 *
 *	reachable = min over levels (reachable - share of its limit)
 *		+ share of the tightest level's limit
 */
static bool
combine_levels(const MemorySignalReader *reader, MemorySignals *reading)
{
	const LevelMemory *own = &reader->levels[0].memory;
	double		low = reader->low_watermark;
	double		high = reader->high_watermark;

	memset(reading, 0, sizeof(*reading));
	reading->tight = tightest(reader);
	if (reading->tight < 0)
		return false;
	reading->reachable = reading->reachable_high = reading->unclaimed = NO_LIMIT;
	reading->own_refaults = own->anonymous_refaults;
	reading->stalled = reader->stalled;
	for (int i = 0; i < reader->nlevels; i++)
	{
		const LevelMemory *memory = &reader->levels[i].memory;
		int64_t		reachable;

		if (memory->limit == NO_LIMIT)
			continue;
		reachable = memory->limit - memory->usage + memory->inactive +
			(own->active < memory->active ? own->active : memory->active);
		leave(&reading->reachable, reachable, low, memory);
		leave(&reading->reachable_high, reachable, high, memory);
		leave(&reading->unclaimed, memory->unclaimed, high, memory);
		if (i == reading->tight)
		{
			reading->limit = memory->limit;
			reading->limit_fall = reader->levels[i].limit_fall;
			reading->available = available_in(memory);
			reading->refaults = memory->refaults;
			reading->swapped = memory->swapped;
		}
	}
	reading->reachable += (int64_t) ((double) reading->limit * low);
	reading->reachable_high += (int64_t) ((double) reading->limit * high);
	reading->unclaimed += (int64_t) ((double) reading->limit * high);
	return true;
}

/*
 * Read all levels. Returns false if one cannot be read any more; the caller
 * then closes and reopens them.
 *
 * System-wide pressure is read only for a later light read to compare with,
 * because each read loses part of it: the kernel adds up the time since the
 * last read in each CPU's busy clock ticks, rounded down. It is read first, so
 * that a light read notices any task that waits after the first level was
 * read.
 */
bool
memory_signals_read(MemorySignalReader *reader, bool for_light_read, MemorySignals *reading)
{
	MemoryLevel *system = &reader->levels[reader->nlevels - 1];
	int64_t		memory;
	int64_t		io;

	reader->complete = false;
	reader->any_stalled = for_light_read ? read_pressure(reader->fd_any_pressure) : -1;
	for (int i = 0; i < reader->nlevels - 1; i++)
	{
		MemoryLevel *level = &reader->levels[i];

		if (!read_numbers(level, &level->memory) || !read_stat(level, &level->memory))
			return false;
	}
	if (!read_system(system, &system->memory))
		return false;
	for (int i = 0; i < reader->nlevels; i++)
	{
		MemoryLevel *level = &reader->levels[i];

		level->limit_fall = level->memory.limit < level->limit_before
			? level->limit_before - level->memory.limit : 0;
		level->limit_before = level->memory.limit;
	}
	if (tightest(reader) == reader->nlevels - 1)
		read_vmstat(reader, &system->memory);	/* only used if the system is the tightest level */
	memory = read_pressure(reader->fd_memory_pressure);
	io = read_pressure(reader->fd_io_pressure);
	reader->stalled = memory < 0 && io < 0 ? -1
		: (memory < 0 ? 0 : memory) + (io < 0 ? 0 : io);
	reader->complete = true;
	return combine_levels(reader, reading);
}

/* Reduce the page cache by that many bytes, inactive pages first; by none if negative. */
static void
subtract_cache(LevelMemory *memory, int64_t bytes)
{
	int64_t		cache = memory->inactive + memory->active;
	int64_t		left = bytes < 0 ? cache : bytes < cache ? cache - bytes : 0;

	memory->active = memory->active < left ? memory->active : left;
	memory->inactive = left - memory->active;
}

/*
 * Read only cheap files, and keep the other values of the last full read: page
 * cache of cgroups, refaults, stall time.
 *
 * Returns false if a full read is necessary: there was none that allows for a
 * light read, a limit has changed, the memory in swap has grown, or a task of
 * the system has waited for memory. The kernel drops page cache only while some
 * task waits for memory. Thus the page cache known from the full read is still
 * there, or the usage has fallen by it. A fall of a cgroup's usage is
 * therefore attributed to page cache.
 */
bool
memory_signals_light_read(MemorySignalReader *reader, MemorySignals *reading)
{
	if (!reader->complete || reader->any_stalled < 0 ||
		read_pressure(reader->fd_any_pressure) != reader->any_stalled)
		return false;
	for (int i = 0; i < reader->nlevels; i++)
	{
		MemoryLevel *level = &reader->levels[i];
		LevelMemory before = level->memory;

		if (!(level->source == MEMORY_SOURCE_SYSTEM
			  ? read_system(level, &level->memory) : read_numbers(level, &level->memory)) ||
			level->memory.limit != before.limit || level->memory.swapped > before.swapped)
			return false;
		level->limit_fall = 0;
		if (level->source != MEMORY_SOURCE_SYSTEM)
			subtract_cache(&level->memory, before.usage - level->memory.usage);
	}
	return combine_levels(reader, reading);
}

/* Return the name of a source, as in pg_balloon.memory_source. */
const char *
memory_source_name(int source)
{
	switch (source)
	{
		case MEMORY_SOURCE_CGROUP2:
			return "cgroup2";
		case MEMORY_SOURCE_CGROUP1:
			return "cgroup1";
		case MEMORY_SOURCE_SYSTEM:
			return "system";
	}
	return "auto";
}

/* Return the number of open files. */
int
memory_signals_files(const MemorySignalReader *reader)
{
	int			files = (reader->fd_vmstat >= 0) + (reader->fd_memory_pressure >= 0) +
		(reader->fd_io_pressure >= 0) + (reader->fd_any_pressure >= 0);

	for (int i = 0; i < reader->nlevels; i++)
	{
		const MemoryLevel *level = &reader->levels[i];

		files += (level->fd_limit >= 0) + (level->fd_high >= 0) + (level->fd_usage >= 0) +
			(level->fd_stat >= 0) + (level->fd_swap >= 0);
	}
	return files;
}
