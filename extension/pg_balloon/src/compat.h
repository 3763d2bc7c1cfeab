/*
 * compat.h
 *		What differs between the PostgreSQL versions that pg_balloon supports.
 *
 * pg_balloon changes buffer headers itself, so it must know the buffer
 * manager of each version; one that nobody has looked at is refused here
 * rather than tried.
 */
#ifndef PG_BALLOON_COMPAT_H
#define PG_BALLOON_COMPAT_H

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "pg_balloon supports PostgreSQL 15 to 18 only: it depends on the buffer manager of each version"
#endif

#ifndef __linux__
#error "pg_balloon supports Linux only: it gives memory back with madvise(MADV_REMOVE)"
#endif

#include "storage/buf_internals.h"
#include "storage/smgr.h"

#if PG_VERSION_NUM >= 160000

#include "utils/relfilenumbermap.h"

#define balloon_locator(tag) BufTagGetRelFileLocator(tag)
#define balloon_fork(tag) BufTagGetForkNum(tag)
#define balloon_clear_tag(tag) ClearBufferTag(tag)
#define balloon_tags_equal(a, b) BufferTagsEqual(a, b)
#define balloon_tablespace(tag) ((tag)->spcOid)
#define balloon_database(tag) ((tag)->dbOid)
#define balloon_relnumber(tag) ((tag)->relNumber)
#define balloon_relid(spc, number) RelidByRelfilenumber(spc, number)
#define balloon_number_of(relation) ((relation)->rd_locator.relNumber)

#else							/* 15 */

#include "utils/relfilenodemap.h"

#define balloon_locator(tag) ((tag)->rnode)
#define balloon_fork(tag) ((tag)->forkNum)
#define balloon_clear_tag(tag) CLEAR_BUFFERTAG(*(tag))
#define balloon_tags_equal(a, b) BUFFERTAGS_EQUAL(*(a), *(b))
#define balloon_tablespace(tag) ((tag)->rnode.spcNode)
#define balloon_database(tag) ((tag)->rnode.dbNode)
#define balloon_relnumber(tag) ((tag)->rnode.relNode)
#define balloon_relid(spc, number) RelidByRelfilenode(spc, number)
#define balloon_number_of(relation) ((relation)->rd_node.relNode)

#endif

/* Path of a fork's first segment, below the data directory; the caller's memory. */
#if PG_VERSION_NUM >= 180000
#define balloon_path(relation, fork) pstrdup(relpath(RelationGetSmgr(relation)->smgr_rlocator, fork).str)
#elif PG_VERSION_NUM >= 160000
#define balloon_path(relation, fork) relpath(RelationGetSmgr(relation)->smgr_rlocator, fork)
#else
#define balloon_path(relation, fork) relpath(RelationGetSmgr(relation)->smgr_rnode, fork)
#endif

/* Does a process that waits for this wait for a page? Since 18 reads may be done by others: an I/O worker, or the kernel (io_uring). */
#if PG_VERSION_NUM >= 180000
#define balloon_is_read(event) \
	((event) == WAIT_EVENT_DATA_FILE_READ || (event) == WAIT_EVENT_AIO_IO_COMPLETION || (event) == WAIT_EVENT_AIO_IO_URING_EXECUTION)
#else
#define balloon_is_read(event) ((event) == WAIT_EVENT_DATA_FILE_READ)
#endif

/* Connection limit of a database whose DROP was interrupted: it cannot be connected to. It has had a name since 15.4. */
#define BALLOON_INVALID_DATABASE (-2)

/* Wait events of our own have been possible since 17; before, all of them are "Extension". */
#if PG_VERSION_NUM >= 170000
#define balloon_wait_event(name) WaitEventExtensionNew(name)
#else
#define balloon_wait_event(name) PG_WAIT_EXTENSION
#endif

#ifdef PG_MODULE_MAGIC_EXT
#define BALLOON_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "pg_balloon", .version = "1.0")
#else
#define BALLOON_MODULE_MAGIC PG_MODULE_MAGIC
#endif

#endif							/* PG_BALLOON_COMPAT_H */
