"""What people and scripts see: tables, JSON, progress, before and after."""
