/*
 * cgroup_path.h
 *		Path of this process's memory cgroup in the file system.
 *
 * Pure C, like controller.h. The caller passes the texts of /proc/self/cgroup
 * and /proc/self/mountinfo.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_CGROUP_PATH_H
#define PG_BALLOON_CGROUP_PATH_H

#include <stdbool.h>

#define CGROUP_PATH_SIZE 1024

extern bool cgroup_path_of_process(const char *cgroup, int version, char *path, int size);
extern bool cgroup_mount(const char *mountinfo, int version, char *mount, char *mount_root,
						 int size);

#endif							/* PG_BALLOON_CGROUP_PATH_H */
