/*
 * buffers.h
 *		The mechanism: buffers leave the pool and come back.
 */
#ifndef PG_BALLOON_BUFFERS_H
#define PG_BALLOON_BUFFERS_H

extern int64 balloon_inflate(int64 buffers, bool write);
extern int64 balloon_deflate(int64 buffers);
extern int64 balloon_write(int64 buffers);

#endif							/* PG_BALLOON_BUFFERS_H */
