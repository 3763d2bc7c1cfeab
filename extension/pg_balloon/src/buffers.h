/*
 * buffers.h
 *		The mechanism: buffers leave the pool and come back.
 */
#ifndef PG_BALLOON_BUFFERS_H
#define PG_BALLOON_BUFFERS_H

extern int64 balloon_inflate(int64 buffers, bool write, double seconds);
extern int64 balloon_deflate(int64 buffers);
extern int64 balloon_write(int64 buffers, double seconds);
extern int	balloon_return_again(int chunk);

#endif							/* PG_BALLOON_BUFFERS_H */
