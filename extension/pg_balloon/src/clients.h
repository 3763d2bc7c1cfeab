/*
 * clients.h
 *		Sessions of clients are counted, since each raises the floor.
 */
#ifndef PG_BALLOON_CLIENTS_H
#define PG_BALLOON_CLIENTS_H

extern void balloon_watch_clients(void);

#endif							/* PG_BALLOON_CLIENTS_H */
