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

#define NO_LIMIT INT64_MAX
#define V1_NO_LIMIT ((int64_t) 1 << 60) /* version 1 says "none" by a number near 2^63 */
#define TEXT 16384

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

static bool
keep(char *into, int size, const char *from, size_t length)
{
	if (length >= (size_t) size)
		return false;
	memcpy(into, from, length);
	into[length] = '\0';
	return true;
}

/* Is the word in a comma-separated list of that length? */
static bool
listed(const char *list, size_t length, const char *word)
{
	size_t		word_length = strlen(word);

	for (size_t i = 0; i + word_length <= length; i++)
		if ((i == 0 || list[i - 1] == ',') && strncmp(list + i, word, word_length) == 0 &&
			(i + word_length == length || list[i + word_length] == ','))
			return true;
	return false;
}

/*
 * The path of the own group in /proc/self/cgroup: of version 2 ("0::/a/b"),
 * or of version 1's memory controller ("4:memory:/a/b").
 */
bool
signals_own_group(const char *cgroup, int version, char *path, int size)
{
	for (const char *line = cgroup; line != NULL && *line;)
	{
		const char *end = strchr(line, '\n');
		const char *controllers = strchr(line, ':');
		const char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		size_t		length = end ? (size_t) (end - line) : strlen(line);

		if (group != NULL && group < line + length)
		{
			bool		wanted = version == 2
				? strncmp(line, "0::", 3) == 0
				: listed(controllers + 1, (size_t) (group - controllers - 1), "memory");

			if (wanted)
				return keep(path, size, group + 1, (size_t) (line + length - group - 1));
		}
		line = end ? end + 1 : NULL;
	}
	return false;
}

/*
 * Where a hierarchy is mounted, by /proc/self/mountinfo: version 2, or
 * version 1's memory controller. "within" is the group that the mount shows as its root,
 * which is not "/" where a container sees part of the host's hierarchy.
 */
bool
signals_mount(const char *mountinfo, int version, char *mount, char *within, int size)
{
	for (const char *line = mountinfo; line != NULL && *line;)
	{
		const char *end = strchr(line, '\n');
		char		copy[2048];
		size_t		length = end ? (size_t) (end - line) : strlen(line);

		if (keep(copy, sizeof(copy), line, length))
		{
			char		root[SIGNALS_PATH];
			char		point[SIGNALS_PATH];
			char	   *rest = strstr(copy, " - ");
			char		type[64];
			char		options[1024];

			if (rest != NULL &&
				sscanf(copy, "%*s %*s %*s %1023s %1023s", root, point) == 2 &&
				sscanf(rest + 3, "%63s %*s %1023s", type, options) == 2 &&
				(version == 2 ? strcmp(type, "cgroup2") == 0
				 : strcmp(type, "cgroup") == 0 && listed(options, strlen(options), "memory")))
				return keep(mount, size, point, strlen(point)) && keep(within, size, root, strlen(root));
		}
		line = end ? end + 1 : NULL;
	}
	return false;
}

static int
open_in(const char *root, const char *directory, const char *name)
{
	char		path[SIGNALS_PATH];

	if (snprintf(path, sizeof(path), "%s%s/%s", root, directory, name) >= (int) sizeof(path))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* The whole of an open file; false if it cannot be read. */
static bool
read_fd(int fd, char *text, int size)
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
		if (n == 0)
			break;
		got += (int) n;
	}
	text[got] = '\0';
	return got > 0;
}

static bool
read_once(const char *root, const char *name, char *text, int size)
{
	int			fd = open_in(root, "", name);
	bool		fine = read_fd(fd, text, size);

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

	memset(level, 0, sizeof(*level));
	level->source = source;
	if (!keep(level->place, sizeof(level->place), directory, strlen(directory)))
		(void) keep(level->place, sizeof(level->place), directory + strlen(directory) - (sizeof(level->place) - 1),
					sizeof(level->place) - 1);
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
	char		group[SIGNALS_PATH];
	char		mount[SIGNALS_PATH];
	char		within[SIGNALS_PATH];
	char		directory[2 * SIGNALS_PATH];
	char		own[2 * SIGNALS_PATH] = ""; /* of the first level; its place may be cut off */
	const char *below = group;
	size_t		mount_length;
	size_t		within_length;

	if (!read_once(root, "/proc/self/cgroup", cgroup, sizeof(cgroup)) ||
		!read_once(root, "/proc/self/mountinfo", mountinfo, sizeof(mountinfo)) ||
		!signals_own_group(cgroup, version, group, sizeof(group)) ||
		!signals_mount(mountinfo, version, mount, within, sizeof(mount)))
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
	else if (reader->nlevels > 0 && signals_own_group(cgroup, 2, group, sizeof(group)) && strcmp(group, "/") != 0 &&
			 signals_mount(mountinfo, 2, mount, within, sizeof(mount)) && strcmp(within, "/") == 0)
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
	reader->fd_vmstat = reader->fd_memory_pressure = reader->fd_io_pressure = -1;
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
	int		   *fds[] = {&reader->fd_vmstat, &reader->fd_memory_pressure, &reader->fd_io_pressure};

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

/* What one level says. */
typedef struct LevelReading
{
	int64_t		limit;			/* NO_LIMIT: none */
	int64_t		usage;
	int64_t		inactive;		/* page cache not used lately */
	int64_t		active;			/* page cache used lately */
	int64_t		refaults;
	int64_t		anonymous_refaults;
	int64_t		swapped;
} LevelReading;

static int64_t
or_zero(int64_t value)
{
	return value < 0 ? 0 : value;
}

static bool
read_group(const SignalLevel *level, LevelReading *out)
{
	static char text[TEXT];
	bool		two = level->source == SIGNALS_CGROUP2;
	int64_t		high;

	if (!read_fd(level->fd_limit, text, sizeof(text)))
		return false;
	out->limit = signals_limit(text);
	if (read_fd(level->fd_high, text, sizeof(text)) && (high = signals_limit(text)) < out->limit)
		out->limit = high;
	if (!read_fd(level->fd_usage, text, sizeof(text)))
		return false;
	out->usage = strtoll(text, NULL, 10);
	out->swapped = read_fd(level->fd_swap, text, sizeof(text)) ? strtoll(text, NULL, 10) : 0;
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

static bool
read_machine(const SignalReader *reader, const SignalLevel *level, LevelReading *out)
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
	out->swapped = (or_zero(signals_field(text, "SwapTotal")) - or_zero(signals_field(text, "SwapFree"))) * 1024;
	out->refaults = out->anonymous_refaults = 0;
	if (read_fd(reader->fd_vmstat, text, sizeof(text)))
	{
		out->anonymous_refaults = or_zero(signals_field(text, "workingset_refault_anon"));
		out->refaults = out->anonymous_refaults + or_zero(signals_field(text, "workingset_refault_file"));
	}
	return true;
}

/* Read all levels. Returns false if one cannot be read any more: close, and open anew. */
bool
signals_read(SignalReader *reader, SignalReading *reading)
{
	static char text[TEXT];
	double		least = 0;
	int64_t		own_active = 0;
	int64_t		memory = -1;
	int64_t		io = -1;

	memset(reading, 0, sizeof(*reading));
	reading->tight = -1;
	reading->reachable = NO_LIMIT;
	for (int i = 0; i < reader->nlevels; i++)
	{
		const SignalLevel *level = &reader->levels[i];
		bool		machine = level->source == SIGNALS_MACHINE;
		LevelReading one = {0};
		int64_t		available;
		int64_t		reachable;

		if (machine ? !read_machine(reader, level, &one) : !read_group(level, &one))
			return false;
		if (i == 0)
		{
			own_active = one.active;
			reading->own_refaults = one.anonymous_refaults;
		}
		if (one.limit == NO_LIMIT || one.limit <= 0)
			continue;
		available = one.limit - one.usage + one.inactive + one.active;
		reachable = one.limit - one.usage + one.inactive + (own_active < one.active ? own_active : one.active);
		if (reachable < reading->reachable)
			reading->reachable = reachable;
		if (reading->tight < 0 || (double) available / (double) one.limit < least)
		{
			least = (double) available / (double) one.limit;
			reading->tight = i;
			reading->limit = one.limit;
			reading->available = available;
			reading->refaults = one.refaults;
			reading->swapped = one.swapped;
		}
	}
	if (read_fd(reader->fd_memory_pressure, text, sizeof(text)))
		memory = signals_some_total(text);
	if (read_fd(reader->fd_io_pressure, text, sizeof(text)))
		io = signals_some_total(text);
	reading->stalled = memory < 0 && io < 0 ? -1 : or_zero(memory) + or_zero(io);
	return reading->tight >= 0;
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
