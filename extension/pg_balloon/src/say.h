/*
 * say.h
 *		The log lines of decisions that matter. Only the worker has any.
 */
#ifndef PG_BALLOON_SAY_H
#define PG_BALLOON_SAY_H

#include "law.h"

extern void balloon_say(const BalloonVerdict *verdict, int64 done, const BalloonView *view);

#endif							/* PG_BALLOON_SAY_H */
