//! Symbolic integers: interned expressions, ranges, facts, simplification.
