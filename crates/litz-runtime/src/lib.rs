//! Runs compiled programs: buffers, threads, checks, object loader, reference device.
