"""Parts that studies share: options, schedule, grade, comparison machinery. No I/O."""
