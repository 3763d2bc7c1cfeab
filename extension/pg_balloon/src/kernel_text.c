/*
 * kernel_text.c
 *		Parsers of the kernel's files: cgroup paths, mounts, numbers.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "kernel_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copy a string of that length. Returns false if it is too long. */
static bool
copy_path(char *into, int size, const char *from, size_t length)
{
	if (length >= (size_t) size)
		return false;
	memcpy(into, from, length);
	into[length] = '\0';
	return true;
}

/* Return true if a comma-separated list of that length contains the word. */
static bool
list_contains(const char *list, size_t length, const char *word)
{
	size_t		word_length = strlen(word);

	for (size_t i = 0; i + word_length <= length; i++)
		if ((i == 0 || list[i - 1] == ',') && strncmp(list + i, word, word_length) == 0 &&
			(i + word_length == length || list[i + word_length] == ','))
			return true;
	return false;
}

/* Decode the escapes of mountinfo in place: "\040" is a blank, and so on. */
static void
unescape(char *path)
{
	char	   *to = path;

	for (const char *from = path; *from; to++)
	{
		if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3)
		{
			*to = (char) ((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
			from += 4;
		}
		else
			*to = *from++;
	}
	*to = '\0';
}

/*
 * Copy the path of this process's cgroup from the text of /proc/self/cgroup:
 * version 2 ("0::/a/b"), or version 1's memory controller ("4:memory:/a/b").
 */
bool
cgroup_path_of_process(const char *cgroup, int version, char *path, int size)
{
	for (const char *line = cgroup; line != NULL && *line;)
	{
		const char *end = strchr(line, '\n');
		const char *controllers = strchr(line, ':');
		const char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		size_t		length = end ? (size_t) (end - line) : strlen(line);

		if (group != NULL && group < line + length)
		{
			bool		matches = version == 2
				? strncmp(line, "0::", 3) == 0
				: list_contains(controllers + 1, (size_t) (group - controllers - 1), "memory");

			if (matches)
				return copy_path(path, size, group + 1, (size_t) (line + length - group - 1));
		}
		line = end ? end + 1 : NULL;
	}
	return false;
}

/*
 * Find where a hierarchy is mounted, in the text of /proc/self/mountinfo:
 * version 2, or version 1's memory controller.
 *
 * "mount_root" is the cgroup that the mount shows as its root. It is not "/"
 * where a container sees only part of the host's hierarchy. A mount of an
 * outer namespace ("/..") is returned only without a mount of the own one.
 */
bool
cgroup_mount(const char *mountinfo, int version, char *mount, char *mount_root, int size)
{
	bool		found = false;

	for (const char *line = mountinfo; line != NULL && *line;)
	{
		const char *end = strchr(line, '\n');
		char		copy[2048];
		size_t		length = end ? (size_t) (end - line) : strlen(line);

		if (copy_path(copy, sizeof(copy), line, length))
		{
			char		root[CGROUP_PATH_SIZE];
			char		point[CGROUP_PATH_SIZE];
			char	   *rest = strstr(copy, " - ");
			char		type[64];
			char		options[1024];

			if (rest != NULL &&
				sscanf(copy, "%*s %*s %*s %1023s %1023s", root, point) == 2 &&
				sscanf(rest + 3, "%63s %*s %1023s", type, options) == 2 &&
				(version == 2 ? strcmp(type, "cgroup2") == 0
				 : strcmp(type, "cgroup") == 0 &&
				 list_contains(options, strlen(options), "memory")))
			{
				unescape(point);
				unescape(root);
				found = copy_path(mount, size, point, strlen(point)) &&
					copy_path(mount_root, size, root, strlen(root));
				if (strncmp(root, "/..", 3) != 0)
					return found;
			}
		}
		line = end ? end + 1 : NULL;
	}
	return found;
}

/* version 1 shows a number near 2^63 for "none" */
#define V1_NO_LIMIT ((int64_t) 1 << 60)

/*
 * Return the number after a key that begins a line ("key 123" or "key: 123"),
 * or -1 without such a line.
 */
int64_t
kernel_field(const char *text, const char *key)
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

/* Return the number after a key that begins a line, or 0 without such a line. */
int64_t
kernel_field_or_zero(const char *text, const char *key)
{
	int64_t		value = kernel_field(text, key);

	return value < 0 ? 0 : value;
}

/* Return a limit in bytes from a number or "max"; NO_LIMIT if there is none. */
int64_t
kernel_limit(const char *text)
{
	int64_t		value;

	if (strncmp(text, "max", 3) == 0)
		return NO_LIMIT;
	value = strtoll(text, NULL, 10);
	return value >= V1_NO_LIMIT ? NO_LIMIT : value;
}

/* Return the microseconds of "some" in the text of a pressure file, or -1. */
int64_t
kernel_some_total(const char *text)
{
	const char *some = strncmp(text, "some ", 5) == 0 ? text : strstr(text, "\nsome ");
	const char *total = some ? strstr(some, "total=") : NULL;

	return total ? strtoll(total + 6, NULL, 10) : -1;
}

/*
 * Set the refaults in the text of memory.stat or vmstat: those of all pages,
 * and those of anonymous and shared memory. -1: not counted. The keys begin
 * with "prefix".
 *
 * Linux before 5.9 counts only pages of files, in one field without a suffix.
 */
void
kernel_refaults(const char *text, const char *prefix, int64_t *all, int64_t *anonymous)
{
	char		key[64];
	int64_t		files;

	snprintf(key, sizeof(key), "%sworkingset_refault_anon", prefix);
	*anonymous = kernel_field(text, key);
	snprintf(key, sizeof(key), "%sworkingset_refault_file", prefix);
	files = kernel_field(text, key);
	if (files < 0)
	{
		snprintf(key, sizeof(key), "%sworkingset_refault", prefix);
		files = kernel_field(text, key);
	}
	*all = files < 0 ? *anonymous : files + (*anonymous < 0 ? 0 : *anonymous);
}
