/*
 * cgroup_path.c
 *		Path of this process's memory cgroup in the file system.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "cgroup_path.h"

#include <stdio.h>
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
 * where a container sees only part of the host's hierarchy.
 */
bool
cgroup_mount(const char *mountinfo, int version, char *mount, char *mount_root, int size)
{
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
				return copy_path(mount, size, point, strlen(point)) &&
					copy_path(mount_root, size, root, strlen(root));
		}
		line = end ? end + 1 : NULL;
	}
	return false;
}
