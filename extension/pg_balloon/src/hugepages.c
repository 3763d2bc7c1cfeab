/*
 * hugepages.c
 *		The size of the pages that the pool lies in.
 *
 * In huge pages a hole of a buffer's size frees nothing; and a whole huge page
 * that was returned may be gone to somebody else when a backend touches it
 * again, which ends that backend with SIGBUS. So such a pool gets no balloon.
 * huge_pages = try does not tell what came of it before PostgreSQL 17, so the
 * kernel is asked.
 */
#include "postgres.h"

#include <stdio.h>

#include "pg_balloon.h"

/*
 * KernelPageSize in bytes of the mapping around the address, by
 * /proc/self/smaps; 0 if it cannot be found out.
 */
Size
balloon_page_size(const void *address)
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
