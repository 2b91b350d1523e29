//! Schedules whose text is the point.
