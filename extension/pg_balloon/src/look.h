/*
 * look.h
 *		What the worker sees in a tick. All of it is the worker's own: nobody else may look.
 */
#ifndef PG_BALLOON_LOOK_H
#define PG_BALLOON_LOOK_H

#include "law.h"
#include "signals.h"

extern void balloon_look_begin(void);
extern bool balloon_look(double dt, bool calm, BalloonView *view, SignalReading *now);
extern bool balloon_look_glanced(void);
extern double balloon_look_safe(void);
extern void balloon_look_gained(int64 buffers);
extern int	balloon_look_source(void);
extern const char *balloon_look_place(const SignalReading *reading);
extern void balloon_look_end(void);

#endif							/* PG_BALLOON_LOOK_H */
