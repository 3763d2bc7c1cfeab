/*
 * compat.h
 *		Differences between the PostgreSQL versions that pg_balloon
 *		supports.
 *
 * pg_balloon changes buffer headers itself, so it depends on the buffer
 * manager of each version. It refuses to compile for a version that was never
 * examined.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_COMPAT_H
#define PG_BALLOON_COMPAT_H

/*
 * A port to 19 has to follow these changes of its headers:
 *	- BufferDesc.state, its flags and LockBufHdr() have 64 bits.
 *	- UnlockBufHdr() takes no state. balloon_inflate_one() would call
 *	  UnlockBufHdrExt(buffer, state, 0, BUF_FLAG_MASK | BUF_USAGECOUNT_MASK, 1),
 *	  and balloon_deflate_one() the same with 0 bits and -1. Other processes may
 *	  drop pins while the header is locked, but here there are none.
 *	- The content lock is part of the state, and no LWLock. A lock needs a pin,
 *	  so buffers that move have none. write_one() has to lock differently.
 *	- There is no free list: no StrategyFreeBuffer(), because the clock sweep
 *	  finds deflated buffers, and no have_free_buffer() in observe.c.
 */
#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "pg_balloon supports PostgreSQL 15 to 18 only: it depends on the buffer manager"
#endif

#ifndef __linux__
#error "pg_balloon supports Linux only: it releases memory with madvise(MADV_REMOVE)"
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

/*
 * Return the path of a fork's first segment, below the data directory; the
 * caller frees it.
 */
#if PG_VERSION_NUM >= 180000
#define balloon_path(relation, fork) \
	pstrdup(relpath(RelationGetSmgr(relation)->smgr_rlocator, fork).str)
#elif PG_VERSION_NUM >= 160000
#define balloon_path(relation, fork) relpath(RelationGetSmgr(relation)->smgr_rlocator, fork)
#else
#define balloon_path(relation, fork) relpath(RelationGetSmgr(relation)->smgr_rnode, fork)
#endif

/*
 * Return true if a process with this wait event waits for a page. Since 18, an
 * I/O worker or the kernel (io_uring) may read for it.
 */
#if PG_VERSION_NUM >= 180000
#define balloon_is_read(event) \
	((event) == WAIT_EVENT_DATA_FILE_READ || \
	 (event) == WAIT_EVENT_AIO_IO_COMPLETION || \
	 (event) == WAIT_EVENT_AIO_IO_URING_EXECUTION)
#else
#define balloon_is_read(event) ((event) == WAIT_EVENT_DATA_FILE_READ)
#endif

/*
 * Connection limit of a database whose DROP was interrupted, so that no
 * session can connect. It has had a name since 15.4.
 */
#define BALLOON_INVALID_DATABASE (-2)

/*
 * Extensions can have named wait events since 17; before, all of them are
 * "Extension".
 */
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
