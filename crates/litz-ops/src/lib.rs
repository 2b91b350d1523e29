//! What each ATen operator means: schema, result type, lowering.
