"""What is started where and when: pure functions, without a clock, without I/O (DESIGN, section 7)."""
