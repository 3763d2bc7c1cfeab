/*
 * groups.h
 *		Where this process's control group lies in the file system.
 *
 * Pure C, like law.h: the texts are those of /proc/self/cgroup and /proc/self/mountinfo (tests/extension/test_signals.py).
 */
#ifndef PG_BALLOON_GROUPS_H
#define PG_BALLOON_GROUPS_H

#include <stdbool.h>

#define GROUPS_PATH 1024

extern bool groups_own(const char *cgroup, int version, char *path, int size);
extern bool groups_mount(const char *mountinfo, int version, char *mount, char *within, int size);

#endif							/* PG_BALLOON_GROUPS_H */
