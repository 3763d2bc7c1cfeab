/*
 * groups.c
 *		Where this process's control group lies in the file system.
 */
#include "groups.h"

#include <stdio.h>
#include <string.h>

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
groups_own(const char *cgroup, int version, char *path, int size)
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
groups_mount(const char *mountinfo, int version, char *mount, char *within, int size)
{
	for (const char *line = mountinfo; line != NULL && *line;)
	{
		const char *end = strchr(line, '\n');
		char		copy[2048];
		size_t		length = end ? (size_t) (end - line) : strlen(line);

		if (keep(copy, sizeof(copy), line, length))
		{
			char		root[GROUPS_PATH];
			char		point[GROUPS_PATH];
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
