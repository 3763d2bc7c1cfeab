/*
 * report.h
 *		What the worker saw and decided last; for pg_balloon_status().
 */
#ifndef PG_BALLOON_REPORT_H
#define PG_BALLOON_REPORT_H

#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "law.h"

#define BALLOON_PLACE 200		/* bytes of a control group's path, with the final zero */

typedef struct BalloonReport
{
	BalloonView view;
	bool		seen;			/* by the last tick; if not, the view is nobody's, and so are source and place */
	int			source;			/* SignalSource */
	char		place[BALLOON_PLACE];	/* the group whose limit is the tightest */
	BalloonVerdict last;		/* the last verdict that changed something */
	int64		done;			/* buffers that it moved */
	TimestampTz when;
	int			now;			/* BalloonWhy of the last tick */
	pid_t		worker;			/* 0: there is none */
	double		miss_cost;		/* seconds per page read back, smoothed; 0: none read yet */
} BalloonReport;

extern Size balloon_report_size(void);
extern void balloon_report_attach(LWLock *lock);
extern void balloon_report_read(BalloonReport *report);
extern void balloon_report_tick(const BalloonView *view, int source, const char *place, const BalloonVerdict *verdict, int64 done);
extern void balloon_report_worker(pid_t worker);
extern void balloon_report_miss(double seconds);

#endif							/* PG_BALLOON_REPORT_H */
