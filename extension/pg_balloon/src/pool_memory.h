/*
 * pool_memory.h
 *		What the operating system does with the memory that the pool lies in.
 */
#ifndef PG_BALLOON_POOL_MEMORY_H
#define PG_BALLOON_POOL_MEMORY_H

extern Size balloon_probe_size(void);
extern bool balloon_can_punch(void *probe, char *why_not, Size size);
extern bool balloon_return(uintptr_t from, uintptr_t to);
extern bool balloon_in_memory(uintptr_t from, uintptr_t to);

#endif							/* PG_BALLOON_POOL_MEMORY_H */
