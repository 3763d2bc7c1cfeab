/*
 * kernel_text.h
 *		Parsers of the kernel's files: cgroup paths, mounts, numbers.
 *
 * Pure C, like controller.h. The caller passes the text.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_KERNEL_TEXT_H
#define PG_BALLOON_KERNEL_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#define CGROUP_PATH_SIZE 1024
#define NO_LIMIT INT64_MAX

extern bool cgroup_path_of_process(const char *cgroup, int version, char *path, int size);
extern bool cgroup_mount(const char *mountinfo, int version, char *mount, char *mount_root,
						 int size);
extern int64_t kernel_field(const char *text, const char *key);
extern int64_t kernel_field_or_zero(const char *text, const char *key);
extern int64_t kernel_limit(const char *text);
extern int64_t kernel_some_total(const char *text);
extern void kernel_refaults(const char *text, const char *prefix, int64_t *all,
							int64_t *anonymous);

#endif							/* PG_BALLOON_KERNEL_TEXT_H */
