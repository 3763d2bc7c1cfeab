/*
 * pool_memory.c
 *		What the operating system does with the memory that the pool lies in.
 *
 * In huge pages a hole of a buffer's size frees nothing; and a whole huge page
 * that was returned may be gone to somebody else when a backend touches it
 * again, which ends that backend with SIGBUS. So such a pool gets no balloon.
 * huge_pages = try does not tell what came of it before PostgreSQL 17, so the
 * kernel is asked; where it does not answer, only huge_pages = off is trusted.
 */
#include "postgres.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pg_shmem.h"

#include "pool_memory.h"

/*
 * KernelPageSize in bytes of the mapping around the address, by
 * /proc/self/smaps; 0 if it cannot be found out.
 */
static Size
page_size(const void *address)
{
	FILE	   *file = fopen("/proc/self/smaps", "r");
	char		line[1024];
	bool		inside = false;
	Size		size = 0;

	if (file == NULL)
		return 0;
	while (size == 0 && fgets(line, sizeof(line), file) != NULL)
	{
		unsigned long from;
		unsigned long to;
		unsigned long kb;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t) address >= from && (uintptr_t) address < to;
		else if (inside && sscanf(line, "KernelPageSize: %lu kB", &kb) == 1)
			size = (Size) kb * 1024;
	}
	fclose(file);
	return size;
}

/* Return whole pages to the operating system; they read as zeros from then on. False, with errno set, if it refused. */
bool
balloon_return(uintptr_t from, uintptr_t to)
{
	return madvise((void *) from, to - from, MADV_REMOVE) == 0;
}

/* Is any of these whole pages in memory? By mincore(); not where that is not to be had. */
bool
balloon_in_memory(uintptr_t from, uintptr_t to)
{
	Size		page = (Size) sysconf(_SC_PAGESIZE);
	unsigned char vector[1024];

	while (from < to)
	{
		Size		n = Min(sizeof(vector), (to - from) / page);

		if (mincore((void *) from, n * page, vector) != 0)
			return false;
		for (Size i = 0; i < n; i++)
			if (vector[i] & 1)
				return true;
		from += n * page;
	}
	return false;
}

/* Bytes of shared memory that balloon_can_punch() wants to try it on. */
Size
balloon_probe_size(void)
{
	return 2 * (Size) sysconf(_SC_PAGESIZE);
}

/*
 * Can memory of this server's pool be returned? Tried on a page of the probe,
 * which is shared memory of our own. If not, why_not says why.
 */
bool
balloon_can_punch(void *probe, char *why_not, Size size)
{
	Size		page = (Size) sysconf(_SC_PAGESIZE);
	Size		pool_page = page_size(BufferBlocks + (Size) NBuffers / 2 * BLCKSZ);
	char	   *tried = (char *) TYPEALIGN(page, probe);
	const char *wrong = NULL;

	if (pool_page > page)
	{
		snprintf(why_not, size,
				 "shared_buffers lies in huge pages of %zu kB, of which single buffers cannot be given back; set huge_pages to off",
				 pool_page / 1024);
		return false;
	}
	if (pool_page == 0 && huge_pages != HUGE_PAGES_OFF)
	{
		snprintf(why_not, size,
				 "/proc/self/smaps does not tell whether shared_buffers lies in huge pages, and huge_pages is not off; set it to off");
		return false;
	}
	memset(tried, 'x', page);
	if (!balloon_return((uintptr_t) tried, (uintptr_t) tried + page))
		wrong = strerror(errno);
	for (Size i = 0; i < page && wrong == NULL; i++)
		if (tried[i] != 0)
			wrong = "it kept what was in it";
	if (wrong != NULL)
		snprintf(why_not, size,
				 "the operating system does not take shared memory back (madvise with MADV_REMOVE): %s", wrong);
	return wrong == NULL;
}
